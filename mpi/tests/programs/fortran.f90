! Fortran 2008: handles, requests, groups and statuses as its layer sees them.
program fortran
  use mpi_f08
  implicit none
  integer :: me, n, x, y, i, total, ranks(1), all(8)
  type(MPI_Request) :: q(2)
  type(MPI_Status) :: st(2)
  type(MPI_Group) :: world, others
  type(MPI_Comm) :: comm
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  x = me
  call MPI_Irecv(y, 1, MPI_INTEGER, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, q(1))
  call MPI_Isend(x, 1, MPI_INTEGER, mod(me + 1, n), 5, MPI_COMM_WORLD, q(2))
  call MPI_Waitall(2, q, st)
  print '(a,3i4)', 'ring', me, y, st(1)%MPI_SOURCE
  call MPI_Recv_init(y, 1, MPI_INTEGER, mod(me + n - 1, n), 6, MPI_COMM_WORLD, q(1))
  call MPI_Send_init(x, 1, MPI_INTEGER, mod(me + 1, n), 6, MPI_COMM_WORLD, q(2))
  do i = 1, 5
    x = 100 * i + me
    call MPI_Startall(2, q)
    call MPI_Wait(q(1), st(1))
    call MPI_Wait(q(2), st(2))
    print '(a,3i5)', 'persistent', me, i, y
    call MPI_Barrier(MPI_COMM_WORLD)
  end do
  call MPI_Request_free(q(1))
  call MPI_Request_free(q(2))
  call MPI_Comm_group(MPI_COMM_WORLD, world)
  ranks(1) = 0
  call MPI_Group_excl(world, 1, ranks, others)
  call MPI_Comm_create(MPI_COMM_WORLD, others, comm)
  if (comm /= MPI_COMM_NULL) then
    call MPI_Allgather(me, 1, MPI_INTEGER, all, 1, MPI_INTEGER, comm)
    print '(a,2i4)', 'others', me, sum(all(1:n - 1))
    call MPI_Comm_free(comm)
  end if
  call MPI_Group_free(others)
  call MPI_Group_free(world)
  call MPI_Allreduce(me, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  print '(a,2i4)', 'sum', me, total
  call MPI_Finalize()
end program

//! Names of functions that came after MPI 3.1, each list for a macro that is given all of them.
// SPDX-License-Identifier: GPL-2.0-or-later

/// Those of MPI 4.
#[macro_export]
macro_rules! newer {
    ($with:ident) => {
        $with! {
            MPI_Allgather_init MPI_Allgatherv_init MPI_Allreduce_init MPI_Alltoall_init MPI_Alltoallv_init
            MPI_Alltoallw_init MPI_Barrier_init MPI_Bcast_init MPI_Comm_create_from_group MPI_Comm_idup_with_info
            MPI_Exscan_init MPI_Gather_init MPI_Gatherv_init MPI_Intercomm_create_from_groups MPI_Isendrecv
            MPI_Isendrecv_replace MPI_Neighbor_allgather_init MPI_Neighbor_allgatherv_init MPI_Neighbor_alltoall_init
            MPI_Neighbor_alltoallv_init MPI_Neighbor_alltoallw_init MPI_Parrived MPI_Pready MPI_Pready_list
            MPI_Pready_range MPI_Precv_init MPI_Psend_init MPI_Reduce_init MPI_Reduce_scatter_block_init
            MPI_Reduce_scatter_init MPI_Request_get_status_all MPI_Request_get_status_any MPI_Request_get_status_some
            MPI_Scan_init MPI_Scatter_init MPI_Scatterv_init MPI_Session_init
        }
    };
}

/// Those with large counts, of which Open MPI has none: bindings look whether they are there.
#[macro_export]
macro_rules! large {
    ($with:ident) => {
        $with! {
            MPI_Accumulate_c MPI_Allgather_c MPI_Allgather_init_c MPI_Allgatherv_c MPI_Allgatherv_init_c
            MPI_Allreduce_c MPI_Allreduce_init_c MPI_Alltoall_c MPI_Alltoall_init_c MPI_Alltoallv_c
            MPI_Alltoallv_init_c MPI_Alltoallw_c MPI_Alltoallw_init_c MPI_Bcast_c MPI_Bcast_init_c MPI_Bsend_c
            MPI_Bsend_init_c MPI_Exscan_c MPI_Exscan_init_c MPI_File_iread_shared_c MPI_File_iwrite_shared_c
            MPI_File_read_ordered_begin_c MPI_File_read_ordered_c MPI_File_read_shared_c
            MPI_File_write_ordered_begin_c MPI_File_write_ordered_c MPI_File_write_shared_c MPI_Gather_c
            MPI_Gather_init_c MPI_Gatherv_c MPI_Gatherv_init_c MPI_Get_accumulate_c MPI_Get_c MPI_Iallgather_c
            MPI_Iallgatherv_c MPI_Iallreduce_c MPI_Ialltoall_c MPI_Ialltoallv_c MPI_Ialltoallw_c MPI_Ibcast_c
            MPI_Ibsend_c MPI_Iexscan_c MPI_Igather_c MPI_Igatherv_c MPI_Imrecv_c MPI_Ineighbor_allgather_c
            MPI_Ineighbor_allgatherv_c MPI_Ineighbor_alltoall_c MPI_Ineighbor_alltoallv_c MPI_Ineighbor_alltoallw_c
            MPI_Irecv_c MPI_Ireduce_c MPI_Ireduce_scatter_block_c MPI_Ireduce_scatter_c MPI_Irsend_c MPI_Iscan_c
            MPI_Iscatter_c MPI_Iscatterv_c MPI_Isend_c MPI_Isendrecv_c MPI_Isendrecv_replace_c MPI_Issend_c
            MPI_Mrecv_c MPI_Neighbor_allgather_c MPI_Neighbor_allgather_init_c MPI_Neighbor_allgatherv_c
            MPI_Neighbor_allgatherv_init_c MPI_Neighbor_alltoall_c MPI_Neighbor_alltoall_init_c
            MPI_Neighbor_alltoallv_c MPI_Neighbor_alltoallv_init_c MPI_Neighbor_alltoallw_c
            MPI_Neighbor_alltoallw_init_c MPI_Put_c MPI_Raccumulate_c MPI_Recv_c MPI_Recv_init_c MPI_Reduce_c
            MPI_Reduce_init_c MPI_Reduce_scatter_block_c MPI_Reduce_scatter_block_init_c MPI_Reduce_scatter_c
            MPI_Reduce_scatter_init_c MPI_Rget_accumulate_c MPI_Rget_c MPI_Rput_c MPI_Rsend_c MPI_Rsend_init_c
            MPI_Scan_c MPI_Scan_init_c MPI_Scatter_c MPI_Scatter_init_c MPI_Scatterv_c MPI_Scatterv_init_c MPI_Send_c
            MPI_Send_init_c MPI_Sendrecv_c MPI_Sendrecv_replace_c MPI_Ssend_c MPI_Ssend_init_c MPI_Win_allocate_c
            MPI_Win_allocate_shared_c MPI_Win_create_c
        }
    };
}

/// What Open MPI had of MPI 4 before it was one.
#[macro_export]
macro_rules! extensions {
    ($with:ident) => {
        $with! {
            MPIX_Allgather_init MPIX_Allgatherv_init MPIX_Allreduce_init MPIX_Alltoall_init MPIX_Alltoallv_init
            MPIX_Alltoallw_init MPIX_Barrier_init MPIX_Bcast_init MPIX_Exscan_init MPIX_Gather_init MPIX_Gatherv_init
            MPIX_Neighbor_allgather_init MPIX_Neighbor_allgatherv_init MPIX_Neighbor_alltoall_init
            MPIX_Neighbor_alltoallv_init MPIX_Neighbor_alltoallw_init MPIX_Reduce_init MPIX_Reduce_scatter_block_init
            MPIX_Reduce_scatter_init MPIX_Scan_init MPIX_Scatter_init MPIX_Scatterv_init
        }
    };
}

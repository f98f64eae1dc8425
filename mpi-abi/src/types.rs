//! What the native library says of a datatype, and how it packs elements.
// SPDX-License-Identifier: GPL-2.0-or-later

/// The functions, for the ABI in whose module they stand.
macro_rules! types {
    () => {
        use crate::memory::moved;
        use std::ffi::c_void;

        /// Packs elements; bytes of it.
        pub fn pack(from: *const c_void, count: Int, datatype: MPI_Datatype, out: &mut [u8]) -> usize {
            let (mut position, own) = (0, handles().own);
            let room = out.len().min(i32::MAX as usize) as Int;
            at_real_base(from.cast_mut(), count, datatype, |from, count, datatype| {
                native().MPI_Pack(from, count, datatype, out.as_mut_ptr().cast(), room, &mut position, own);
            });
            position as usize
        }

        /// Unpacks elements.
        pub fn unpack(contents: &[u8], to: *mut c_void, count: Int, datatype: MPI_Datatype) {
            let (mut position, own) = (0, handles().own);
            let bytes = contents.len().min(i32::MAX as usize) as Int;
            at_real_base(to, count, datatype, |to, count, datatype| {
                native().MPI_Unpack(contents.as_ptr().cast(), bytes, &mut position, to, count, datatype, own);
            });
        }

        /// Hands elements on. MPICH packs nothing at `MPI_BOTTOM`: there they are one element, of a type that begins at the first byte.
        fn at_real_base(
            base: *mut c_void,
            count: Int,
            datatype: MPI_Datatype,
            pack: impl FnOnce(*mut c_void, Int, MPI_Datatype),
        ) {
            if !base.is_null() {
                return pack(base, count, datatype);
            }
            let (first, _) = true_extent(datatype);
            let mut moved_back = handles().no_type;
            native().MPI_Type_create_hindexed(1, &count, &(-first as MPI_Aint), datatype, &mut moved_back);
            native().MPI_Type_commit(&mut moved_back);
            pack(moved(base, first), 1, moved_back);
            native().MPI_Type_free(&mut moved_back);
        }

        /// Where the first byte of an element lies, and how many bytes there are to its last.
        #[must_use]
        pub fn true_extent(datatype: MPI_Datatype) -> (isize, isize) {
            let (mut lower, mut extent): (MPI_Aint, MPI_Aint) = (0, 0);
            native().MPI_Type_get_true_extent(datatype, &mut lower, &mut extent);
            (lower as isize, extent as isize)
        }

        /// Bytes of an element's contents.
        #[must_use]
        pub fn size(datatype: MPI_Datatype) -> u64 {
            let mut bytes = 0;
            native().MPI_Type_size_x(datatype, &mut bytes);
            bytes.max(0) as u64
        }

        /// Bytes from one element to the next.
        #[must_use]
        pub fn extent(datatype: MPI_Datatype) -> isize {
            let (mut lower, mut extent): (MPI_Aint, MPI_Aint) = (0, 0);
            native().MPI_Type_get_extent(datatype, &mut lower, &mut extent);
            extent as isize
        }

        /// The type of which all elements consist, if it is one of MPI's own.
        #[must_use]
        pub fn leaf(datatype: MPI_Datatype) -> Option<MPI_Datatype> {
            let (mut integers, mut addresses, mut types, mut combiner) = (0, 0, 0, 0);
            native().MPI_Type_get_envelope(datatype, &mut integers, &mut addresses, &mut types, &mut combiner);
            // Fortran's types of a precision are predefined, too.
            if combiner == MPI_COMBINER_NAMED as Int || types == 0 {
                return Some(datatype);
            }
            let (mut numbers, mut places) = (vec![0; integers as usize], vec![0; addresses as usize]);
            let mut parts = vec![handles().no_type; types as usize];
            let (at, places) = (numbers.as_mut_ptr(), places.as_mut_ptr());
            native().MPI_Type_get_contents(datatype, integers, addresses, types, at, places, parts.as_mut_ptr());
            let leaves: Option<Vec<MPI_Datatype>> = parts.iter().map(|part| leaf(*part)).collect();
            parts.iter_mut().filter(|part| !named(**part)).for_each(|part| {
                native().MPI_Type_free(part);
            });
            match &leaves?[..] {
                [first, others @ ..] if others.iter().all(|other| other == first) => Some(*first),
                _ => None,
            }
        }

        /// Whether it is one of MPI's own types.
        #[must_use]
        pub fn named(datatype: MPI_Datatype) -> bool {
            let (mut integers, mut addresses, mut types, mut combiner) = (0, 0, 0, 0);
            native().MPI_Type_get_envelope(datatype, &mut integers, &mut addresses, &mut types, &mut combiner);
            combiner == MPI_COMBINER_NAMED as Int
        }

        /// Whether elements lie one after another as they are sent.
        #[must_use]
        pub fn lies_as_sent(datatype: MPI_Datatype) -> bool {
            let (mut lower, mut extent): (MPI_Aint, MPI_Aint) = (0, 0);
            native().MPI_Type_get_extent(datatype, &mut lower, &mut extent);
            named(datatype) && lower == 0 && extent as u64 == size(datatype)
        }
    };
}
pub(crate) use types;

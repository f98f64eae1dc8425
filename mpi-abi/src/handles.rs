//! What the handles of each ABI have in common.
// SPDX-License-Identifier: GPL-2.0-or-later

/// The predefined handles of the ABI in whose module it stands, and what that one keeps beside them.
macro_rules! predefined {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// The predefined handles.
        pub struct Handles {
            /// `MPI_COMM_WORLD`.
            pub world: MPI_Comm,
            /// `MPI_COMM_SELF`.
            pub own: MPI_Comm,
            /// `MPI_COMM_NULL`.
            pub no_comm: MPI_Comm,
            /// `MPI_REQUEST_NULL`.
            pub no_request: MPI_Request,
            /// `MPI_GROUP_NULL`.
            pub no_group: MPI_Group,
            /// `MPI_GROUP_EMPTY`.
            pub empty_group: MPI_Group,
            /// `MPI_MESSAGE_NULL`.
            pub no_message: MPI_Message,
            /// `MPI_MESSAGE_NO_PROC`.
            pub no_process: MPI_Message,
            /// `MPI_DATATYPE_NULL`.
            pub no_type: MPI_Datatype,
            /// `MPI_OP_NULL`.
            pub no_op: MPI_Op,
            /// `MPI_REPLACE`.
            pub replace: MPI_Op,
            /// `MPI_NO_OP`.
            pub no_operation: MPI_Op,
            /// `MPI_BYTE`.
            pub byte: MPI_Datatype,
            /// `MPI_PACKED`.
            pub packed: MPI_Datatype,
            /// `MPI_INFO_NULL`.
            pub no_info: MPI_Info,
            /// `MPI_ERRORS_RETURN`.
            pub errors_return: MPI_Errhandler,
            $($(#[$doc])* $field: $type,)*
        }
    };
}
pub(crate) use predefined;

/// Handles of ours for an ABI whose handles are addresses: one range of addresses each kind, in what `handles()` has reserved as
/// `range`, so many bytes from one to the next.
macro_rules! addresses {
    ($stride:expr) => {
        // SAFETY: addresses that are only compared and handed on; what they point to is the native library's.
        unsafe impl Send for Handles {}
        // SAFETY: as above; nothing in it is written after it was made, but for what is made for that.
        unsafe impl Sync for Handles {}

        /// Addresses that hold nothing of anybody else, for all kinds.
        fn range() -> usize {
            crate::reserve(SLOTS * $stride * 3)
        }

        /// Where a kind's range begins.
        fn begin(kind: Kind) -> usize {
            handles().range + SLOTS * $stride * kind as usize
        }

        fn address(kind: Kind, index: u32) -> usize {
            begin(kind) + index as usize * $stride
        }

        fn index(kind: Kind, handle: usize) -> Option<u32> {
            let offset = handle.wrapping_sub(begin(kind));
            (offset < SLOTS * $stride).then_some((offset / $stride) as u32)
        }

        /// The handle of our request `index`.
        pub fn request_handle(index: u32) -> MPI_Request {
            numbered(Kind::Request, index) as MPI_Request
        }

        /// Which of our requests a handle is, or `None` if it is native.
        #[inline]
        pub fn request_index(handle: MPI_Request) -> Option<u32> {
            index(Kind::Request, handle as usize)
        }

        /// The handle of our group `index`.
        pub fn group_handle(index: u32) -> MPI_Group {
            numbered(Kind::Group, index) as MPI_Group
        }

        /// Which of our groups a handle is, or `None` if it is native.
        #[inline]
        pub fn group_index(handle: MPI_Group) -> Option<u32> {
            index(Kind::Group, handle as usize)
        }

        /// The handle of our message `index`.
        pub fn message_handle(index: u32) -> MPI_Message {
            address(Kind::Message, index) as MPI_Message
        }

        /// Which of our messages a handle is, or `None` if it is native.
        #[inline]
        pub fn message_index(handle: MPI_Message) -> Option<u32> {
            index(Kind::Message, handle as usize)
        }

        /// Whether the program asked for no status.
        #[inline]
        pub fn ignored(status: *const MPI_Status) -> bool {
            status.is_null()
        }

        /// `MPI_STATUS_IGNORE`.
        #[must_use]
        #[inline]
        pub fn no_status() -> *mut MPI_Status {
            std::ptr::null_mut()
        }
    };
}
pub(crate) use addresses;

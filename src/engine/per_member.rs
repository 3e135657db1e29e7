//! One value for each member of a lock.

use smallvec::SmallVec;

/// One value for each member. Most locks have one member.
pub(crate) type PerMember<T> = SmallVec<[T; 1]>;

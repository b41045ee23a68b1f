//! The containers of a service: one, or several that are alike.
//!
//! Where a service has several containers, each is named `app#2` in words, logs and
//! reasons: no service can have a `#` in its name, so nobody is mistaken for another.

use super::ContainerId;

/// One container of a launched stack.
#[derive(Debug, Clone, Copy)]
pub struct Replica<'a> {
    /// Its Compose service.
    pub service: &'a str,
    /// Its place among the containers of the service, from 0.
    pub index: usize,
    /// How many containers the service has.
    pub of: usize,
    /// The container.
    pub id: &'a ContainerId,
}

impl Replica<'_> {
    /// What people call it: `app` when it is the only one, else `app#2`, from 1.
    pub fn name(&self) -> String {
        replica_name(self.service, self.index, self.of)
    }
}

/// The name of the container at `index`, from 0, of a service that has so many.
pub(super) fn replica_name(service: &str, index: usize, of: usize) -> String {
    if of == 1 {
        service.to_owned()
    } else {
        format!("{service}#{}", index + 1)
    }
}

/// Every container of a service with what is known of each.
pub(super) fn replicas<'a>(
    service: &'a str,
    ids: &'a [ContainerId],
) -> impl Iterator<Item = Replica<'a>> {
    ids.iter().enumerate().map(move |(index, id)| Replica {
        service,
        index,
        of: ids.len(),
        id,
    })
}

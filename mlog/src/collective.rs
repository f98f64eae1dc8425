//! Barrier, broadcast and reductions over a binomial tree: the order of operations is fixed, so the bits are too.

use crate::{Endpoint, Error};

/// Tags of collectives; programs use tags from 0 on.
const UP: i32 = -1;
const DOWN: i32 = -2;

/// How a reduction combines two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds them; integers wrap.
    Sum,
    /// Multiplies them; integers wrap.
    Product,
    /// The lesser.
    Min,
    /// The greater.
    Max,
}

/// A number that can be reduced.
pub trait Number: Copy {
    /// `self` operated with `other`.
    fn combine(self, operation: Operation, other: Self) -> Self;
    /// Appends the bytes in native byte order to `out`.
    fn put(self, out: &mut Vec<u8>);
    /// From 8 bytes in native byte order.
    fn get(bytes: [u8; 8]) -> Self;
}

impl Number for f64 {
    fn combine(self, operation: Operation, other: f64) -> f64 {
        match operation {
            Operation::Sum => self + other,
            Operation::Product => self * other,
            Operation::Min => self.min(other),
            Operation::Max => self.max(other),
        }
    }
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_ne_bytes());
    }
    fn get(bytes: [u8; 8]) -> f64 {
        f64::from_ne_bytes(bytes)
    }
}

impl Number for i64 {
    fn combine(self, operation: Operation, other: i64) -> i64 {
        match operation {
            Operation::Sum => self.wrapping_add(other),
            Operation::Product => self.wrapping_mul(other),
            Operation::Min => self.min(other),
            Operation::Max => self.max(other),
        }
    }
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_ne_bytes());
    }
    fn get(bytes: [u8; 8]) -> i64 {
        i64::from_ne_bytes(bytes)
    }
}

/// The parent and the children of a place in a binomial tree whose root is place 0.
fn tree(place: usize, size: usize) -> (Option<usize>, Vec<usize>) {
    let mut children = Vec::new();
    let mut bit = 1;
    while bit < size {
        if place & bit != 0 {
            return (Some(place - bit), children);
        }
        if place + bit < size {
            children.push(place + bit);
        }
        bit <<= 1;
    }
    (None, children)
}

impl Endpoint {
    /// Waits until all groups are here.
    ///
    /// # Errors
    /// What the relay says.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.allreduce::<i64>(&mut [], Operation::Sum)
    }

    /// Gives the bytes of `root` to all.
    ///
    /// # Errors
    /// [`Error::Usage`] for a root that cannot be, [`Error::TooLong`] if lengths differ, or what the relay says.
    pub fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let (parent, children) = self.family(root)?;
        if let Some(parent) = parent {
            fill(bytes, &self.collect(parent, DOWN)?)?;
        }
        for child in children.into_iter().rev() {
            self.post_send(child, DOWN, bytes)?;
        }
        self.flush()
    }

    /// Combines the values of all groups, place by place, into those of `root`; those of others are left undefined.
    ///
    /// # Errors
    /// As [`Endpoint::broadcast`].
    pub fn reduce<N: Number>(&mut self, root: usize, values: &mut [N], operation: Operation) -> Result<(), Error> {
        let (parent, children) = self.family(root)?;
        for child in children {
            let theirs = self.collect(child, UP)?;
            if theirs.len() != 8 * values.len() {
                return Err(Error::TooLong { bytes: theirs.len(), room: 8 * values.len() });
            }
            for (value, bytes) in values.iter_mut().zip(theirs.as_chunks::<8>().0) {
                *value = value.combine(operation, N::get(*bytes));
            }
        }
        if let Some(parent) = parent {
            self.post_send(parent, UP, &bytes_of(values))?;
        }
        self.flush()
    }

    /// As [`Endpoint::reduce`], and gives the result to all.
    ///
    /// # Errors
    /// As [`Endpoint::broadcast`].
    pub fn allreduce<N: Number>(&mut self, values: &mut [N], operation: Operation) -> Result<(), Error> {
        self.reduce(0, values, operation)?;
        let mut bytes = bytes_of(values);
        self.broadcast(0, &mut bytes)?;
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *value = N::get(*bytes);
        }
        Ok(())
    }

    fn family(&self, root: usize) -> Result<(Option<usize>, Vec<usize>), Error> {
        let (groups, me) = (self.groups(), self.group());
        if root >= groups {
            return Err(Error::Usage(format!("root {root} of {groups} groups")));
        }
        let (parent, children) = tree((me + groups - root) % groups, groups);
        let group = |place: usize| (place + root) % groups;
        Ok((parent.map(group), children.into_iter().map(group).collect()))
    }

    fn collect(&mut self, from: usize, tag: i32) -> Result<Vec<u8>, Error> {
        let request = self.post_recv(from, tag)?;
        Ok(self.wait(request)?.unwrap_or_default())
    }
}

fn fill(into: &mut [u8], bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() != into.len() {
        return Err(Error::TooLong { bytes: bytes.len(), room: into.len() });
    }
    into.copy_from_slice(bytes);
    Ok(())
}

fn bytes_of<N: Number>(values: &[N]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 * values.len());
    values.iter().for_each(|v| v.put(&mut out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_but_the_root_is_the_child_of_its_parent() {
        for size in 1..40 {
            for place in 0..size {
                let (parent, children) = tree(place, size);
                assert_eq!(parent.is_none(), place == 0);
                assert!(parent.is_none_or(|p| tree(p, size).1.contains(&place)), "{place} of {size}");
                assert!(children.iter().all(|c| tree(*c, size).0 == Some(place)));
            }
        }
    }
}

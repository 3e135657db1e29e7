//! What a key holds.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

pub(crate) type Bytes = Arc<[u8]>;

pub(crate) type List = VecDeque<Bytes>;

/// The value of a key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Hash(Hash),
    List(List),
    Scores(Scores),
    Text(Bytes),
}

impl Value {
    /// The name of its type, as Redis has it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Scores(_) => "zset",
            Self::Text(_) => "string",
        }
    }
}

/// One type of value.
pub(crate) trait Kind: Default + Into<Value> {
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn len(&self) -> usize;
}

macro_rules! kind {
    ($($variant:ident)*) => {
        $(
            impl Kind for $variant {
                fn of(value: &mut Value) -> Option<&mut Self> {
                    match value {
                        Value::$variant(found) => Some(found),
                        _ => None,
                    }
                }

                fn len(&self) -> usize {
                    self.len()
                }
            }

            impl From<$variant> for Value {
                fn from(value: $variant) -> Self {
                    Self::$variant(value)
                }
            }
        )*
    };
}

kind! { Hash List Scores }

/// The fields of a hash, in the order in which they were created, as Redis keeps those of a small hash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hash {
    fields: HashMap<Bytes, (u64, Bytes)>,
    order: BTreeMap<u64, Bytes>,
    created: u64,
}

impl Hash {
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        self.fields.get(field).map(|(_, value)| value)
    }

    /// Sets a field. Returns whether it is new.
    pub(crate) fn set(&mut self, field: &Bytes, value: &Bytes) -> bool {
        if let Some((_, old)) = self.fields.get_mut(field) {
            *old = Arc::clone(value);
            return false;
        }
        self.created += 1;
        self.fields.insert(Arc::clone(field), (self.created, Arc::clone(value)));
        self.order.insert(self.created, Arc::clone(field));
        true
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.fields.remove(field);
        removed.is_some_and(|(number, _)| self.order.remove(&number).is_some())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.after(0).map(|(_, field, value)| (field, value))
    }

    /// The fields that were created later than the one with this number, with their numbers.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = (u64, &Bytes, &Bytes)> {
        let later = self.order.range(number.saturating_add(1)..);
        later.map(|(number, field)| (*number, field, &self.fields[field].1))
    }

    /// Whether Redis keeps it as a list: it has few fields, and all are short.
    pub(crate) fn is_small(&self) -> bool {
        const FIELDS: usize = 512;
        const BYTES: usize = 64;
        self.len() <= FIELDS && self.iter().all(|(field, value)| field.len() <= BYTES && value.len() <= BYTES)
    }
}

/// A sorted set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    scores: HashMap<Bytes, f64>,
    order: BTreeSet<(Rank, Bytes)>,
}

/// A score as an integer. The integers have the same order as the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(i64);

impl From<f64> for Rank {
    fn from(score: f64) -> Self {
        let bits = (score + 0.0).to_bits().cast_signed(); // -0 becomes 0
        Self(if bits < 0 { i64::MIN - bits } else { bits })
    }
}

impl Scores {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn get(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets a score. Returns the old one.
    pub(crate) fn set(&mut self, member: &Bytes, score: f64) -> Option<f64> {
        let old = self.scores.insert(Arc::clone(member), score);
        if let Some(old) = old {
            self.order.remove(&(old.into(), Arc::clone(member)));
        }
        self.order.insert((score.into(), Arc::clone(member)));
        old
    }

    pub(crate) fn remove(&mut self, member: &Bytes) -> bool {
        let removed = self.scores.remove(member);
        removed.is_some_and(|score| self.order.remove(&(score.into(), Arc::clone(member))))
    }

    /// The number of members in front of this one.
    pub(crate) fn rank(&self, member: &Bytes) -> Option<usize> {
        let score = self.get(member)?;
        Some(self.order.range(..(score.into(), Arc::clone(member))).count())
    }

    /// The members and their scores, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.order.iter().map(|(_, member)| (member, self.scores[member]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_sort_as_scores_do() {
        let scores = [f64::NEG_INFINITY, -2.5, -1.0, 0.0, 1e-9, 1.0, 1.5, 1e18, f64::INFINITY];
        assert!(scores.map(Rank::from).is_sorted());
        assert_eq!(Rank::from(-0.0), Rank::from(0.0));
    }
}

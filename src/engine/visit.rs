//! Visits every state of a model, for the explorers of the pure machines.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

/// The name of a step: what happens, in which client, and to which actor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name(pub(crate) &'static str, pub(crate) usize, pub(crate) usize);

pub(crate) struct Step<W> {
    pub(crate) name: Name,
    pub(crate) world: Box<W>,
}

/// The name of the step that is the same in all models.
pub(crate) const TIME_PASSES: &str = "time passes";

/// A machine, and models of everything around it.
pub(crate) trait Model: Clone + Debug + Hash {
    /// All worlds to which one step leads, except that time passes.
    fn steps(&self) -> Vec<Step<Self>>;

    /// Whether a step with this name need not come: the world may wait for ever before it.
    fn is_quiet(name: &str) -> bool;

    /// How often time can still pass although a step is due that has to come.
    fn delays(&mut self) -> &mut u8;

    /// Lets one tick of time pass.
    fn passes(&mut self);

    /// Gives worlds the same form if they differ in nothing that matters, so that each is visited once.
    fn normalize(&mut self);

    /// Checks the rules, and panics if one does not hold.
    fn check(&self, steps: &[Step<Self>]);

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool;
}

/// A hash of 128 bits: the chance that two states have the same one is negligible.
struct Fingerprint(u128);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ u128::from(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15_D6E8_FEB8_6659_FD93);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        unreachable!("it is read as a whole")
    }
}

fn fingerprint(world: &impl Hash) -> u128 {
    let mut hasher = Fingerprint(1);
    world.hash(&mut hasher);
    hasher.0
}

/// Visits all states, and returns their number, and the names of all steps. Panics with the steps that lead to a
/// violation.
fn explore<W: Model>(start: W, most: usize) -> (usize, BTreeSet<&'static str>) {
    let mut known = HashMap::from([(fingerprint(&start), 0_u32)]);
    // For each state, the state from which it was first reached, and the step. `violation` prints this path.
    let mut parents: Vec<(u32, Name)> = vec![(0, Name("", 0, 0))];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut ends: Vec<u32> = Vec::new();
    let mut queue = VecDeque::from([Box::new(start)]);
    let mut seen = BTreeSet::new();
    let mut number = 0_u32;
    while let Some(world) = queue.pop_front() {
        let guarded = |work: &mut dyn FnMut() -> Vec<Step<W>>| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                violation(text.as_deref().unwrap_or("panics"), number, &parents, &world)
            })
        };
        let steps = guarded(&mut || {
            let mut steps = world.steps();
            let is_late = !steps.iter().all(|step| W::is_quiet(step.name.0));
            let mut later = world.clone();
            if !is_late || *later.delays() > 0 {
                *later.delays() -= u8::from(is_late);
                later.passes();
                later.normalize();
                steps.push(Step { name: Name(TIME_PASSES, 0, 0), world: later });
            }
            world.check(&steps);
            steps
        });
        if world.is_over() {
            ends.push(number);
        }
        for Step { name, world: next } in steps {
            let new = u32::try_from(parents.len()).expect("few states");
            let id = *known.entry(fingerprint(&next)).or_insert(new);
            if id == new {
                parents.push((number, name));
                queue.push_back(next);
                assert!(parents.len() <= most, "more than {most} states");
            }
            edges.push((number, id));
            seen.insert(name.0);
        }
        number += 1;
    }
    // An end must be reachable from every state. So walk back from the ends, and look for states that were not met.
    let mut back: Vec<Vec<u32>> = vec![Vec::new(); parents.len()];
    for (from, to) in edges {
        back[to as usize].push(from);
    }
    let mut reaches = vec![false; parents.len()];
    let mut stack = ends;
    while let Some(state) = stack.pop() {
        if !std::mem::replace(&mut reaches[state as usize], true) {
            stack.append(&mut back[state as usize]);
        }
    }
    if let Some(state) = reaches.iter().position(|reaches| !reaches) {
        violation("no end can be reached", u32::try_from(state).expect("few"), &parents, &"(see the steps)");
    }
    (parents.len(), seen)
}

fn violation(text: &str, mut state: u32, parents: &[(u32, Name)], world: &dyn Debug) -> ! {
    let mut path = Vec::new();
    while state != 0 {
        let (parent, name) = &parents[state as usize];
        path.push(format!("{}.{} {}", name.1, name.2, name.0));
        state = *parent;
    }
    path.reverse();
    panic!("{} states, {text}, after:\n  {}\n{world:#?}", parents.len(), path.join("\n  "));
}

/// Visits each of these configurations, and prints how many states it has. Returns the names of all steps.
pub(crate) fn visit<W: Model, const N: usize>(configurations: [(&str, W); N]) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    for (name, world) in configurations {
        let start = std::time::Instant::now();
        let (states, steps) = explore(world, 20_000_000);
        println!("{name}: {states} states in {:?}", start.elapsed());
        seen.extend(steps);
    }
    seen
}

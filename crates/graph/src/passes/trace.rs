//! What the passes did to a graph: the graph after each, and how often each rewrite fired.

use crate::Graph;

/// How often each rewrite fired. The names of all rewrites are those of [`super::PASSES`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    counts: Vec<(&'static str, usize)>,
}

impl Trace {
    /// Notes that a rewrite fired.
    pub fn count(&mut self, rewrite: &'static str) {
        match self.counts.iter_mut().find(|c| c.0 == rewrite) {
            Some(count) => count.1 += 1,
            None => self.counts.push((rewrite, 1)),
        }
    }

    /// How often `rewrite` fired.
    pub fn of(&self, rewrite: &str) -> usize {
        self.iter().find(|c| c.0 == rewrite).map_or(0, |c| c.1)
    }

    /// The rewrites that fired, in the order in which each first did, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.counts.iter().copied()
    }
}

/// One step of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub pass: &'static str,
    /// The graph after the pass.
    pub graph: Graph,
    /// What the pass did.
    pub trace: Trace,
}

//! Recipes: how a leaf comes out of the tensors of a file, without its bytes.
//!
//! A recipe can be cut by rows, so that loading streams: [`Recipe::pieces`] names, for a range of the leaf's rows, which
//! rows of which sources they are, in order. Constant folding edits recipes; loading executes them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::GraphError;

/// How a leaf is made. Rows are the outermost dimension: a vector's rows are its elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recipe {
    /// The tensor called `name` in the model's files, with this many rows.
    Source { name: String, rows: usize },
    /// The rows of several recipes, one after the other.
    Concat(Vec<Recipe>),
    /// Rows `start..end` of another recipe.
    Take {
        of: Box<Recipe>,
        start: usize,
        end: usize,
    },
    /// Rows in another order, within each group of `head` rows: row `2i` comes from `i`, row `2i+1` from `i + head/2`
    /// (`interleave`), or the inverse. This is the difference between the two rotary pairings.
    RotaryRows {
        of: Box<Recipe>,
        head: usize,
        interleave: bool,
    },
    /// `scale · x + shift` of unquantised values.
    Affine {
        of: Box<Recipe>,
        scale: f32,
        shift: f32,
    },
}

/// Consecutive rows of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece<'a> {
    pub source: &'a str,
    pub rows: Range<usize>,
    /// `scale · x + shift`, to be applied to unquantised values; `(1, 0)` leaves them as they are.
    pub affine: (f32, f32),
}

impl Recipe {
    pub fn source(name: impl Into<String>, rows: usize) -> Self {
        Recipe::Source {
            name: name.into(),
            rows,
        }
    }

    /// `scale · x + shift` of this recipe; an edit of an edit is one edit.
    pub fn affine(&self, scale: f32, shift: f32) -> Self {
        let (of, (scale, shift)) = match self {
            Recipe::Affine {
                of,
                scale: inner,
                shift: offset,
            } => (of.clone(), (inner * scale, offset * scale + shift)),
            other => (Box::new(other.clone()), (scale, shift)),
        };
        Recipe::Affine { of, scale, shift }
    }

    /// How many rows the recipe gives.
    pub fn rows(&self) -> usize {
        match self {
            Recipe::Source { rows, .. } => *rows,
            Recipe::Concat(parts) => {
                let rows = parts.iter().map(Recipe::rows);
                rows.fold(0, usize::saturating_add)
            }
            Recipe::Take { start, end, .. } => end.saturating_sub(*start),
            Recipe::RotaryRows { of, .. } | Recipe::Affine { of, .. } => of.rows(),
        }
    }

    /// The names of all sources, in order, with repetitions.
    pub fn sources(&self) -> Vec<&str> {
        match self {
            Recipe::Source { name, .. } => vec![name],
            Recipe::Concat(parts) => parts.iter().flat_map(Recipe::sources).collect(),
            Recipe::Take { of, .. } | Recipe::RotaryRows { of, .. } | Recipe::Affine { of, .. } => {
                of.sources()
            }
        }
    }

    /// Checks what [`Recipe::pieces`] relies on: ranges inside their parts, heads that divide the rows, sums and scales
    /// that exist.
    pub fn check(&self) -> Result<(), GraphError> {
        let bad = |found: String| GraphError::Recipe { found };
        match self {
            Recipe::Source { .. } => Ok(()),
            Recipe::Concat(parts) if parts.is_empty() => {
                Err(bad("a concatenation of nothing".into()))
            }
            Recipe::Concat(parts) => {
                let rows = parts.iter().map(Recipe::rows);
                if rows.into_iter().try_fold(0, usize::checked_add).is_none() {
                    return Err(bad("a concatenation of more rows than can be".into()));
                }
                parts.iter().try_for_each(Recipe::check)
            }
            Recipe::Take { of, start, end } => {
                if start > end || *end > of.rows() {
                    return Err(bad(format!("take {start}..{end} of {} rows", of.rows())));
                }
                of.check()
            }
            Recipe::RotaryRows { of, head, .. } => {
                if *head == 0 || head % 2 != 0 || of.rows() % head != 0 {
                    return Err(bad(format!(
                        "rotary rows of heads of {head} over {} rows",
                        of.rows()
                    )));
                }
                of.check()
            }
            Recipe::Affine { of, scale, shift } => {
                if !(scale.is_finite() && shift.is_finite()) {
                    return Err(bad(format!("{scale} · x + {shift}")));
                }
                of.check()
            }
        }
    }

    /// The rows `range` of the leaf as rows of the sources, in order; neighbours of one source are joined.
    pub fn pieces(&self, range: Range<usize>) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        self.collect(range, (1.0, 0.0), &mut pieces);
        pieces
    }

    fn collect<'a>(&'a self, range: Range<usize>, affine: (f32, f32), out: &mut Vec<Piece<'a>>) {
        match self {
            Recipe::Source { name, .. } => push(out, name, range, affine),
            Recipe::Concat(parts) => {
                let mut first = 0;
                for part in parts {
                    let rows = part.rows();
                    let start = range.start.max(first);
                    let end = range.end.min(first + rows);
                    if start < end {
                        part.collect(start - first..end - first, affine, out);
                    }
                    first += rows;
                }
            }
            Recipe::Take { of, start, .. } => {
                of.collect(range.start + start..range.end + start, affine, out)
            }
            Recipe::RotaryRows {
                of,
                head,
                interleave,
            } => {
                for row in range {
                    let (base, i, half) = (row - row % head, row % head, head / 2);
                    let from = if *interleave {
                        i / 2 + (i % 2) * half
                    } else {
                        (i % half) * 2 + i / half
                    };
                    of.collect(base + from..base + from + 1, affine, out);
                }
            }
            Recipe::Affine { of, scale, shift } => {
                of.collect(range, (affine.0 * scale, affine.0 * shift + affine.1), out);
            }
        }
    }
}

fn push<'a>(out: &mut Vec<Piece<'a>>, source: &'a str, rows: Range<usize>, affine: (f32, f32)) {
    if let Some(last) = out.last_mut()
        && last.source == source
        && last.rows.end == rows.start
        && last.affine == affine
    {
        last.rows.end = rows.end;
        return;
    }
    out.push(Piece {
        source,
        rows,
        affine,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotary_rows_undo_each_other() {
        let once = Recipe::RotaryRows {
            of: Box::new(Recipe::source("a", 16)),
            head: 8,
            interleave: true,
        };
        let twice = Recipe::RotaryRows {
            of: Box::new(once.clone()),
            head: 8,
            interleave: false,
        };
        assert_eq!(
            twice.pieces(0..16),
            vec![Piece {
                source: "a",
                rows: 0..16,
                affine: (1.0, 0.0)
            }]
        );
        let firsts: Vec<usize> = once.pieces(0..8).iter().map(|p| p.rows.start).collect();
        assert_eq!(firsts, [0, 4, 1, 5, 2, 6, 3, 7]);
    }

    #[test]
    fn a_cut_across_parts_names_each() {
        let r = Recipe::Concat(vec![Recipe::source("a", 3), Recipe::source("b", 4)]);
        let got: Vec<_> = r
            .pieces(2..5)
            .into_iter()
            .map(|p| (p.source, p.rows))
            .collect();
        assert_eq!(got, [("a", 2..3), ("b", 0..2)]);
    }
}

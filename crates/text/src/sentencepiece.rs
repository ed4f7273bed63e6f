//! SentencePiece's BPE in terms of merges: a vocabulary with scores says which pairs of pieces make a piece, and the
//! better its score the earlier they are merged.

use std::cmp::{Ordering, Reverse};

use ahash::AHashMap;
use tokenizers::NormalizerWrapper;
use tokenizers::normalizers::{Prepend, Replace, Sequence};

use crate::TextError;
use crate::error::shown;
use crate::spelling::SPACE_MARK;

/// Longer pieces do not occur. Looking for the parts of a piece takes time by the square of its length.
const MAX_PIECE_BYTES: usize = 512;

/// Real vocabularies have about two. More than this is a file that wants to exhaust memory.
const MAX_MERGES_PER_TOKEN: usize = 16;

/// A pair of pieces that make a piece.
struct Merge<'a> {
    score: f32,
    left: &'a str,
    right: &'a str,
}

/// The merges that scores imply, as `generate_merges` of Hugging Face orders them: by score, then by the length of
/// the parts in characters, larger first; equal ones in the order of the ids of what they make, then of their parts.
///
/// Tokens that `is_text` denies are no part of any merge. `scores`: one for each token.
pub(crate) fn merges(
    tokens: &[&str],
    scores: &[f32],
    vocabulary: &AHashMap<String, u32>,
    is_text: impl Fn(u32) -> bool,
) -> Result<Vec<(String, String)>, TextError> {
    let text_id = |piece: &str| vocabulary.get(piece).copied().filter(|&id| is_text(id));
    let most = MAX_MERGES_PER_TOKEN * tokens.len();
    let mut merges = Vec::with_capacity(2 * tokens.len());
    for ((id, &token), &score) in (0u32..).zip(tokens).zip(scores) {
        if !is_text(id) {
            continue;
        }
        check_token(token, score)?;
        let cuts = token
            .char_indices()
            .skip(1)
            .map(|(at, _)| token.split_at(at));
        let mut pairs: Vec<_> = cuts
            .filter_map(|(left, right)| Some((text_id(left)?, text_id(right)?, left, right)))
            .collect();
        pairs.sort_by_key(|&(left_id, right_id, ..)| (left_id, right_id));
        merges.extend(
            pairs
                .into_iter()
                .map(|(_, _, left, right)| Merge { score, left, right }),
        );
        if merges.len() > most {
            return Err(TextError::Limit {
                field: "merges that tokenizer.ggml.scores imply",
                limit: most,
                found: merges.len(),
            });
        }
    }
    let length = |piece: &str| Reverse(piece.chars().count());
    merges.sort_by(|a, b| {
        let by_score = b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal);
        let by_length = |m: &Merge| (length(m.left), length(m.right));
        by_score.then_with(|| by_length(a).cmp(&by_length(b)))
    });
    let owned = |m: Merge| (m.left.to_owned(), m.right.to_owned());
    Ok(merges.into_iter().map(owned).collect())
}

/// A space for each `▁`, and one before each piece of text between special tokens where `space_prefix` says so.
pub(crate) fn normalizer(space_prefix: bool) -> Result<NormalizerWrapper, TextError> {
    let mark = SPACE_MARK.to_string();
    let replace = Replace::new(" ", mark.clone()).map_err(|error| TextError::Build {
        message: error.to_string(),
    })?;
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if space_prefix {
        steps.push(Prepend::new(mark).into());
    }
    steps.push(replace.into());
    Ok(Sequence::new(steps).into())
}

fn check_token(token: &str, score: f32) -> Result<(), TextError> {
    if token.len() > MAX_PIECE_BYTES {
        return Err(TextError::Limit {
            field: "bytes of a token in tokenizer.ggml.tokens",
            limit: MAX_PIECE_BYTES,
            found: token.len(),
        });
    }
    if score.is_nan() {
        return Err(TextError::Field {
            field: "tokenizer.ggml.scores",
            expected: "a number for each token",
            found: format!("NaN for {}", shown(token)),
        });
    }
    Ok(())
}

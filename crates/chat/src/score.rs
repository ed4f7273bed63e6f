//! What a model thinks of given tokens: likelihoods, best next tokens, logits.

use ingle_engine::{CancelToken, SequenceSlice};

use crate::{Chat, ChatError};

/// What [`Chat::score`] measures of `n` tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// The most likely token after each token, `[n]`.
    pub best: Vec<u32>,
    /// Negative log likelihood of each token after the first, in nats, `[n − 1]`.
    pub nll: Vec<f64>,
    /// Whole logit vectors `[vocabulary]` at the positions asked for.
    pub logits: Vec<Vec<f32>>,
}

impl Chat {
    /// Runs `ids` in a sequence of its own. `logits_at` holds indices into `ids`, ascending.
    ///
    /// `between` is awaited between steps, so that a page stays responsive.
    pub async fn score(
        &mut self,
        ids: &[u32],
        logits_at: &[usize],
        cancel: &CancelToken,
        between: &mut dyn AsyncBetween,
    ) -> Result<Score, ChatError> {
        if let Some(at) = logits_at.iter().find(|&&at| at >= ids.len()) {
            return Err(ChatError::Input {
                field: "positions",
                expected: format!("indices below {}", ids.len()),
                found: at.to_string(),
            });
        }
        let sequence = self.engine.create();
        let result = self
            .score_sequence(sequence, ids, logits_at, cancel, between)
            .await;
        self.engine.release(sequence)?;
        result
    }

    async fn score_sequence(
        &mut self,
        sequence: ingle_engine::SequenceId,
        ids: &[u32],
        logits_at: &[usize],
        cancel: &CancelToken,
        between: &mut dyn AsyncBetween,
    ) -> Result<Score, ChatError> {
        let chunk = self.engine.chunk().min(self.engine.options().outputs);
        let rows: Vec<usize> = (0..chunk).collect();
        let vocabulary = self.engine.vocabulary();
        let mut score = Score::default();
        for start in (0..ids.len()).step_by(chunk) {
            if cancel.is_cancelled() {
                return Err(ChatError::Cancelled);
            }
            let tokens = &ids[start..ids.len().min(start + chunk)];
            let outputs = &rows[..tokens.len()];
            self.engine.forward(&[SequenceSlice {
                sequence,
                tokens,
                outputs,
            }])?;
            let logits = self.engine.logits(0..tokens.len()).await?;
            for (i, row) in logits.chunks_exact(vocabulary).enumerate() {
                let at = start + i;
                score.best.push(best(row));
                if let Some(&next) = ids.get(at + 1) {
                    score
                        .nll
                        .push(log_sum_exp(row) - f64::from(row[next as usize]));
                }
                if logits_at.contains(&at) {
                    score.logits.push(row.to_vec());
                }
            }
            between.pause().await;
        }
        Ok(score)
    }
}

/// Something to wait for between steps.
pub trait AsyncBetween {
    fn pause(&mut self) -> ingle_graph::backend::LocalFuture<'_, ()>;
}

/// Waits for nothing.
pub struct NoPause;

impl AsyncBetween for NoPause {
    fn pause(&mut self) -> ingle_graph::backend::LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The index of the largest logit, the first of equals.
fn best(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, v) in logits.iter().enumerate() {
        if *v > logits[best] {
            best = i;
        }
    }
    best as u32
}

/// `ln Σ exp(x)`, without overflow.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&v| f64::from(v - max).exp()).sum();
    f64::from(max) + sum.ln()
}

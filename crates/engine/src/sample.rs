//! Sampling on the host: temperature, top-k, top-p and a seed. Greedy sampling is the device's business.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::EngineError;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by this; 0 takes the most likely token.
    pub temperature: f32,
    /// Only so many of the most likely tokens; 0 for all.
    pub top_k: usize,
    /// Only the most likely tokens that together reach this probability (Holtzman et al. 2020, arXiv 1904.09751); 1 for
    /// all.
    pub top_p: f32,
    /// The same seed, model, prompt and device give the same tokens.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            seed: 0,
        }
    }
}

impl Sampling {
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0 || self.top_k == 1
    }

    fn check(&self) -> Result<(), EngineError> {
        let wrong = |field, expected: &str, found: f32| {
            Err(EngineError::Input {
                field,
                expected: expected.into(),
                found: found.to_string(),
            })
        };
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return wrong(
                "temperature",
                "a finite number of at least 0",
                self.temperature,
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top_p", "above 0, up to 1", self.top_p);
        }
        Ok(())
    }
}

/// Draws tokens from logits.
pub struct Sampler {
    sampling: Sampling,
    random: Pcg32,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Result<Self, EngineError> {
        sampling.check()?;
        let random = Pcg32::seed_from_u64(sampling.seed);
        Ok(Sampler {
            sampling,
            random,
            candidates: Vec::new(),
        })
    }

    pub fn is_greedy(&self) -> bool {
        self.sampling.is_greedy()
    }

    /// Draws a token from finite logits. Of equal logits the first token is the more likely.
    pub fn draw(&mut self, logits: &[f32]) -> u32 {
        self.candidates.clear();
        self.candidates.extend(logits.iter().copied().zip(0..));
        let by_logit = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let k = self.sampling.top_k;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, by_logit);
            self.candidates.truncate(k);
        }
        let greedy = self.sampling.is_greedy();
        if greedy || self.sampling.top_p < 1.0 {
            self.candidates.sort_unstable_by(by_logit);
        }
        if greedy {
            return self.candidates.first().map_or(0, |c| c.1);
        }
        let total = self.softmax();
        let total = self.keep_top_p(total);
        self.pick(total)
    }

    /// Turns logits into probabilities that are not normalised; gives their sum.
    fn softmax(&mut self) -> f64 {
        let max = self
            .candidates
            .iter()
            .map(|c| c.0)
            .fold(f32::NEG_INFINITY, f32::max);
        let mut total = 0.0;
        for candidate in &mut self.candidates {
            candidate.0 = ((candidate.0 - max) / self.sampling.temperature).exp();
            total += f64::from(candidate.0);
        }
        total
    }

    /// Drops the tail; gives the sum of the rest.
    fn keep_top_p(&mut self, total: f64) -> f64 {
        if self.sampling.top_p >= 1.0 {
            return total;
        }
        let wanted = total * f64::from(self.sampling.top_p);
        let (mut sum, mut count) = (0.0, 0);
        for candidate in &self.candidates {
            sum += f64::from(candidate.0);
            count += 1;
            if sum >= wanted {
                break;
            }
        }
        self.candidates.truncate(count);
        sum
    }

    fn pick(&mut self, total: f64) -> u32 {
        // 53 random bits: the double's whole precision.
        let uniform = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = uniform * total;
        for &(weight, token) in &self.candidates {
            left -= f64::from(weight);
            if left < 0.0 {
                return token;
            }
        }
        // Rounding can leave a trace: it belongs to the last candidate that has any weight.
        self.candidates
            .iter()
            .rev()
            .find(|c| c.0 > 0.0)
            .map_or(0, |c| c.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sampling: Sampling, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling).unwrap();
        let mut counts = vec![0; logits.len()];
        for _ in 0..draws {
            counts[sampler.draw(logits) as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [1.0f32, 2.0, 0.0, -1.0];
        let sampling = Sampling {
            temperature: 0.8,
            ..Sampling::default()
        };
        let found = counts(sampling, &logits, 100_000);
        let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / 0.8).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (count, weight) in found.iter().zip(&weights) {
            assert!(
                (*count as f64 / 1e5 - weight / total).abs() < 0.01,
                "{found:?}"
            );
        }
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let logits = [0.0f32, 3.0, 1.0, 2.0];
        let k = counts(
            Sampling {
                temperature: 1.0,
                top_k: 2,
                ..Sampling::default()
            },
            &logits,
            1000,
        );
        assert!(k[0] == 0 && k[2] == 0 && k[1] > k[3] && k[3] > 0, "{k:?}");
        // The best token has 0.64, the best two 0.88.
        let p = counts(
            Sampling {
                temperature: 1.0,
                top_p: 0.8,
                ..Sampling::default()
            },
            &logits,
            1000,
        );
        assert!(p[0] == 0 && p[2] == 0 && p[3] > 0, "{p:?}");
        let p = counts(
            Sampling {
                temperature: 1.0,
                top_p: 0.5,
                ..Sampling::default()
            },
            &logits,
            1000,
        );
        assert_eq!(p[1], 1000);
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let logits: Vec<f32> = (0..64).map(|i| (i % 7) as f32).collect();
        let run = |seed| {
            let mut s = Sampler::new(Sampling {
                temperature: 1.0,
                seed,
                ..Sampling::default()
            })
            .unwrap();
            (0..32).map(|_| s.draw(&logits)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn nonsense_is_refused() {
        for (temperature, top_p) in [
            (-1.0, 1.0),
            (f32::NAN, 1.0),
            (1.0, 0.0),
            (1.0, 1.5),
            (1.0, f32::NAN),
        ] {
            assert!(
                Sampler::new(Sampling {
                    temperature,
                    top_p,
                    ..Sampling::default()
                })
                .is_err()
            );
        }
    }
}

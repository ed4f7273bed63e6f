//! `Generation`: a prompt in chunks, then one token after the other.
//!
//! Each call of [`Generation::next`] does one chunk or one token and returns, so that the caller can show what came, look
//! at its messages, and cancel. Where steps run behind and the device chooses the token, the step after a token is enqueued
//! before that token is read; when the token turns out to be the end, the step is taken back.

use crate::sample::{Sampler, Sampling};
use crate::{CancelToken, ChosenToken, Engine, EngineError, SequenceId, SequenceSlice};

/// What a generation depends on besides its prompt.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    pub sampling: Sampling,
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// Tokens that end the answer. They are not reported.
    pub stop_tokens: Vec<u32>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its answer.
    Stop,
    /// As many tokens as were allowed.
    Length,
    /// The sequence fills the context.
    ContextFull,
    Cancelled,
}

/// What one call of [`Generation::next`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// So many of the prompt's tokens have been enqueued.
    Prefill {
        done: usize,
        total: usize,
    },
    Token(u32),
    /// Nothing more will come.
    Finished(Finish),
}

/// A generation under way.
pub struct Generation {
    sequence: SequenceId,
    prompt: Vec<u32>,
    /// How much of the prompt has been enqueued.
    done: usize,
    sampler: Sampler,
    stop_tokens: Vec<u32>,
    left: usize,
    /// The last token, if the sequence does not have it yet.
    pending: Option<u32>,
    /// The token after the last one: the step that chooses it has been enqueued.
    ahead: Option<ChosenToken>,
    /// Whether steps are enqueued ahead.
    runs_ahead: bool,
    cancel: CancelToken,
    finished: Option<Finish>,
}

impl Generation {
    /// Will append `prompt` to the sequence and then tokens of its own. Nothing runs yet.
    ///
    /// A prompt that does not fit the context is an error: there is nothing to answer.
    pub fn new(
        engine: &Engine,
        sequence: SequenceId,
        prompt: &[u32],
        options: GenerateOptions,
        cancel: CancelToken,
    ) -> Result<Self, EngineError> {
        let held = engine.tokens(sequence)?.len();
        let (needed, context) = (held + prompt.len(), engine.options().context);
        if needed > context {
            return Err(EngineError::ContextFull { needed, context });
        }
        if prompt.is_empty() {
            return Err(EngineError::Input {
                field: "prompt",
                expected: "at least one token".into(),
                found: "none".into(),
            });
        }
        Ok(Generation {
            sequence,
            prompt: prompt.to_vec(),
            done: 0,
            sampler: Sampler::new(options.sampling)?,
            stop_tokens: options.stop_tokens,
            left: options.max_tokens,
            pending: None,
            ahead: None,
            runs_ahead: engine.is_asynchronous(),
            cancel,
            finished: None,
        })
    }

    /// Does the next chunk of the prompt, or the next token.
    ///
    /// After an end it gives that end again. The sequence then holds the prompt and all reported tokens but perhaps the
    /// last.
    pub async fn next(&mut self, engine: &mut Engine) -> Result<Event, EngineError> {
        if self.finished.is_none() && self.cancel.is_cancelled() {
            self.finished = Some(Finish::Cancelled);
        }
        if let Some(finish) = self.finished {
            return Ok(Event::Finished(finish));
        }
        if self.done < self.prompt.len() {
            self.prefill(engine)?;
            if self.done < self.prompt.len() {
                return Ok(Event::Prefill {
                    done: self.done,
                    total: self.prompt.len(),
                });
            }
        }
        if self.left == 0 {
            return Ok(self.finish(Finish::Length));
        }
        let between = |token: &mut ChosenToken| !engine.is_of_last_step(token);
        if self.ahead.take_if(between).is_some() {
            // Others use the engine too, and what this step chose may be overwritten: it is run again, when it is due.
            self.pending = engine.tokens(self.sequence)?.last().copied();
            self.take_back(engine)?;
            self.runs_ahead = false;
        }
        if let Some(token) = self.pending {
            if engine.tokens(self.sequence)?.len() >= engine.options().context {
                return Ok(self.finish(Finish::ContextFull));
            }
            engine.forward(&[SequenceSlice {
                sequence: self.sequence,
                tokens: &[token],
                outputs: &[0],
            }])?;
            self.pending = None;
        }
        let outcome = if self.sampler.is_greedy() {
            self.choose(engine).await
        } else {
            let logits = engine.logits(0..1).await;
            logits.map(|logits| self.sampler.draw(logits))
        };
        match outcome {
            Ok(token) if !self.stop_tokens.contains(&token) => {
                self.pending = self.ahead.is_none().then_some(token);
                self.left -= 1;
                Ok(Event::Token(token))
            }
            end => {
                if self.ahead.take().is_some() {
                    self.take_back(engine)?;
                }
                end.map(|_| self.finish(Finish::Stop))
            }
        }
    }

    /// The token that the device chooses; where it pays, the step after it is enqueued first.
    async fn choose(&mut self, engine: &mut Engine) -> Result<u32, EngineError> {
        let token = match self.ahead.take() {
            Some(token) => token,
            None => engine.begin_chosen_token()?,
        };
        let has_room = engine.tokens(self.sequence)?.len() < engine.options().context;
        if self.runs_ahead && self.left > 1 && has_room {
            match engine.forward_chosen(self.sequence) {
                Ok(()) => self.ahead = Some(engine.begin_chosen_token()?),
                // The token can still be read. The step after it is tried again and says what is wrong.
                Err(EngineError::PoolFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        engine.chosen_token(token).await
    }

    /// Takes back the step that was enqueued ahead.
    fn take_back(&mut self, engine: &mut Engine) -> Result<(), EngineError> {
        let len = engine.tokens(self.sequence)?.len();
        engine.truncate(self.sequence, len.saturating_sub(1))
    }

    fn prefill(&mut self, engine: &mut Engine) -> Result<(), EngineError> {
        let end = self.prompt.len().min(self.done + engine.chunk());
        let tokens = &self.prompt[self.done..end];
        let last = [tokens.len() - 1];
        let outputs: &[usize] = if end == self.prompt.len() { &last } else { &[] };
        engine.forward(&[SequenceSlice {
            sequence: self.sequence,
            tokens,
            outputs,
        }])?;
        self.done = end;
        Ok(())
    }

    fn finish(&mut self, finish: Finish) -> Event {
        self.finished = Some(finish);
        Event::Finished(finish)
    }
}

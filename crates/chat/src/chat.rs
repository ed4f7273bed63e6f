//! `Chat`: one conversation at a time, in small steps that the caller drives.

use ingle_engine::{CancelToken, Engine, Event, GenerateOptions, Generation, Sampling, SequenceId};
use ingle_text::{
    ChatTemplate, ControlTokens, EncodeOptions, Message, Now, RenderInput, StreamDecoder,
    TextError, Tokenizer,
};

use crate::ChatError;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// As many tokens as were allowed.
    Length,
    /// The conversation fills the context.
    ContextFull,
    Cancelled,
}

/// What a call of [`Chat::step`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Whole characters that are new.
    pub text: String,
    /// Whether a token came; a step of the prompt gives none.
    pub token: Option<u32>,
    /// Set when the answer has ended.
    pub finish: Option<Finish>,
}

/// How to answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub sampling: Sampling,
    /// The most tokens; as many as fit if `None`.
    pub max_tokens: Option<usize>,
    /// The time, for templates that write a date.
    pub now: Option<Now>,
}

/// A loaded model.
pub struct Chat {
    pub(crate) engine: Engine,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    sequence: SequenceId,
    running: Option<Running>,
}

/// An answer under way.
struct Running {
    generation: Generation,
    decoder: Option<StreamDecoder>,
    prompt_tokens: usize,
    cached_tokens: usize,
    completion_tokens: usize,
}

impl Chat {
    pub(crate) fn new(
        mut engine: Engine,
        tokenizer: Tokenizer,
        template: Option<ChatTemplate>,
    ) -> Self {
        let sequence = engine.create();
        Chat {
            engine,
            tokenizer,
            template,
            sequence,
            running: None,
        }
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The ids of a text to be continued as it is.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        Ok(self.tokenizer.encode(text, EncodeOptions::PROMPT)?)
    }

    /// The text that the model's template makes of a conversation.
    pub fn render(&self, messages: &[Message], now: Option<Now>) -> Result<String, ChatError> {
        let template = self.template.as_ref().ok_or(TextError::NoTemplate)?;
        let input = RenderInput {
            messages,
            add_generation_prompt: true,
            now,
            ..RenderInput::default()
        };
        Ok(template.render(&input)?)
    }

    /// Starts to answer a conversation. An answer that is under way ends.
    pub fn start_chat(
        &mut self,
        messages: &[Message],
        answer: Answer,
        cancel: CancelToken,
    ) -> Result<(), ChatError> {
        if messages.is_empty() {
            return Err(ChatError::Input {
                field: "messages",
                expected: "at least one".into(),
                found: "none".into(),
            });
        }
        let text = self.render(messages, answer.now)?;
        let ids = self.tokenizer.encode(&text, EncodeOptions::TEMPLATE)?;
        let decoder = StreamDecoder::new(&self.tokenizer, ControlTokens::Skip);
        self.start(&ids, decoder, answer, cancel)
    }

    /// Starts to continue a text as it is. An answer that is under way ends.
    pub fn start_completion(
        &mut self,
        prompt: &str,
        answer: Answer,
        cancel: CancelToken,
    ) -> Result<(), ChatError> {
        let ids = self.encode(prompt)?;
        self.start(
            &ids,
            StreamDecoder::continuing(ControlTokens::Skip),
            answer,
            cancel,
        )
    }

    fn start(
        &mut self,
        ids: &[u32],
        decoder: StreamDecoder,
        answer: Answer,
        cancel: CancelToken,
    ) -> Result<(), ChatError> {
        self.running = None;
        let options = GenerateOptions {
            sampling: answer.sampling,
            max_tokens: answer.max_tokens.unwrap_or(usize::MAX),
            stop_tokens: self.tokenizer.end_of_generation().to_vec(),
        };
        // What the conversation has in common with the last one need not run again.
        let cached = self.engine.reuse(self.sequence, ids)?;
        let generation =
            Generation::new(&self.engine, self.sequence, &ids[cached..], options, cancel)?;
        self.running = Some(Running {
            generation,
            decoder: Some(decoder),
            prompt_tokens: ids.len(),
            cached_tokens: cached,
            completion_tokens: 0,
        });
        Ok(())
    }

    /// Does the next piece of the prompt or the next token.
    pub async fn step(&mut self) -> Result<Step, ChatError> {
        let Some(running) = &mut self.running else {
            return Err(ChatError::Input {
                field: "step",
                expected: "an answer under way".into(),
                found: "none".into(),
            });
        };
        let mut step = Step::default();
        match running.generation.next(&mut self.engine).await? {
            Event::Prefill { .. } => {}
            Event::Token(id) => {
                running.completion_tokens += 1;
                step.token = Some(id);
                if let Some(decoder) = &mut running.decoder {
                    step.text = decoder.push(&self.tokenizer, id)?;
                }
            }
            Event::Finished(finish) => {
                step.text = running
                    .decoder
                    .take()
                    .map_or("", StreamDecoder::finish)
                    .into();
                step.finish = Some(match finish {
                    ingle_engine::Finish::Stop => Finish::Stop,
                    ingle_engine::Finish::Length => Finish::Length,
                    ingle_engine::Finish::ContextFull => Finish::ContextFull,
                    ingle_engine::Finish::Cancelled => Finish::Cancelled,
                });
            }
        }
        Ok(step)
    }

    /// Ends the answer under way, if there is one. What was computed can be reused.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Tokens of the prompt, those of them that did not run again, and tokens of the answer so far.
    pub fn usage(&self) -> (usize, usize, usize) {
        self.running.as_ref().map_or((0, 0, 0), |r| {
            (r.prompt_tokens, r.cached_tokens, r.completion_tokens)
        })
    }
}

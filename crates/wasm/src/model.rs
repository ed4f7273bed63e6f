//! `Model`: what the worker holds.

use ingle_chat::{
    AsyncBetween, CancelToken, Chat, ChatError, GraphOptions, LoadOptions, Progress, load,
    open_gguf,
};
use ingle_graph::backend::LocalFuture;
use js_sys::{Array, Float32Array, Function, Object, Promise, Reflect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use crate::device::{self, Opening};
use crate::error;
use crate::source::{ByteSource, JsFile};
use crate::types::{self, ChatMessage, Device, GenerateOptions, Step};

/// A loaded model. Its methods are called one after the other.
#[wasm_bindgen]
pub struct Model {
    chat: Chat,
    device: Device,
}

#[wasm_bindgen]
impl Model {
    /// Loads a GGUF model. `cancelled()` is asked between reads, which give way to messages.
    ///
    /// `compile_kernels(keys)` gives a promise of kernel texts; see [`device::open`].
    pub async fn load(
        source: ByteSource,
        options: JsValue,
        cancelled: Function,
        compile_kernels: Function,
    ) -> Result<Model, JsValue> {
        let options: types::LoadOptions = from_js("options", options)?;
        let mut files = JsFile::new(source);
        let thrown = files.thrown();
        let cancel = CancelToken::new();
        let result = async {
            let opened = open_gguf(&mut files).await?;
            let settings = LoadOptions {
                activations: options.activations,
                context: options.context,
                graph: GraphOptions {
                    kv: options.kv.into(),
                },
                ..LoadOptions::default()
            };
            let Opening { backend, device } =
                device::open(&opened, &options, &settings, &compile_kernels).await?;
            let mut progress = |_: Progress| {
                if is_true(&cancelled) {
                    cancel.cancel();
                }
            };
            let chat = load(
                opened,
                &settings,
                backend,
                &mut files,
                &cancel,
                &mut progress,
            )
            .await?;
            Ok(Model { chat, device })
        };
        let result: Result<Model, ChatError> = result.await;
        result.map_err(|e| {
            thrown
                .borrow_mut()
                .take()
                .unwrap_or_else(|| error::to_js(&e))
        })
    }

    /// `DeviceInfo`.
    pub fn device(&self) -> Result<JsValue, JsValue> {
        to_js(&self.device)
    }

    /// The most tokens of a conversation.
    pub fn context(&self) -> usize {
        self.chat.engine().options().context
    }

    /// Starts to answer a conversation.
    pub fn start_chat(&mut self, messages: JsValue, options: JsValue) -> Result<(), JsValue> {
        let messages: Vec<ChatMessage> = from_js("messages", messages)?;
        let messages: Vec<_> = messages.into_iter().map(Into::into).collect();
        let options: GenerateOptions = from_js("options", options)?;
        let start =
            |chat: &mut Chat| chat.start_chat(&messages, options.answer()?, CancelToken::new());
        start(&mut self.chat).map_err(|e| error::to_js(&e))
    }

    /// Starts to continue a text.
    pub fn start_completion(&mut self, prompt: &str, options: JsValue) -> Result<(), JsValue> {
        let options: GenerateOptions = from_js("options", options)?;
        let start =
            |chat: &mut Chat| chat.start_completion(prompt, options.answer()?, CancelToken::new());
        start(&mut self.chat).map_err(|e| error::to_js(&e))
    }

    /// Does the next piece of the prompt or the next token.
    pub async fn step(&mut self) -> Result<JsValue, JsValue> {
        let step = self.chat.step().await.map_err(|e| error::to_js(&e))?;
        let (prompt_tokens, _, completion_tokens) = self.chat.usage();
        to_js(&Step {
            text: step.text,
            tokens: usize::from(step.token.is_some()),
            finish: step.finish.map(types::finish_name),
            prompt_tokens,
            completion_tokens,
        })
    }

    /// Ends the answer under way.
    pub fn stop(&mut self) {
        self.chat.stop();
    }

    /// The ids of a text to be continued.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, JsValue> {
        self.chat.encode(text).map_err(|e| error::to_js(&e))
    }

    /// `ScoreResult` of these tokens.
    pub async fn score(
        &mut self,
        ids: Vec<u32>,
        logits_at: Vec<u32>,
        cancelled: Function,
        give_way: Function,
    ) -> Result<JsValue, JsValue> {
        let cancel = CancelToken::new();
        let positions: Vec<usize> = logits_at.iter().map(|&p| p as usize).collect();
        let mut between = Between {
            give_way,
            cancelled,
            cancel: cancel.clone(),
        };
        let score = self
            .chat
            .score(&ids, &positions, &cancel, &mut between)
            .await;
        let score = score.map_err(|e| error::to_js(&e))?;
        let logits: Array = score
            .logits
            .iter()
            .map(|l| Float32Array::from(l.as_slice()))
            .collect();
        let result = Object::new();
        for (key, value) in [
            ("best", to_js(&score.best)?),
            ("nll", to_js(&score.nll)?),
            ("logits", logits.into()),
        ] {
            Reflect::set(&result, &JsValue::from_str(key), &value)?;
        }
        Ok(result.into())
    }
}

/// Gives way to the worker's messages, and looks whether one of them cancelled.
struct Between {
    give_way: Function,
    cancelled: Function,
    cancel: CancelToken,
}

impl AsyncBetween for Between {
    fn pause(&mut self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            if let Ok(promise) = self.give_way.call0(&JsValue::NULL) {
                // The pause's own value, or its failure, means nothing.
                let _ = JsFuture::from(Promise::resolve(&promise)).await;
            }
            if is_true(&self.cancelled) {
                self.cancel.cancel();
            }
        })
    }
}

fn is_true(function: &Function) -> bool {
    function.call0(&JsValue::NULL).is_ok_and(|v| v.is_truthy())
}

fn from_js<T: DeserializeOwned>(field: &str, value: JsValue) -> Result<T, JsValue> {
    serde_wasm_bindgen::from_value(value)
        .map_err(|e| error::object("invalid", &format!("{field}: {e}")))
}

fn to_js<T: Serialize>(value: &T) -> Result<JsValue, JsValue> {
    let serializer = serde_wasm_bindgen::Serializer::json_compatible();
    value
        .serialize(&serializer)
        .map_err(|e| error::object("internal", &e.to_string()))
}

//! What crosses the border as plain objects; see `web/src/types.ts` and `web/src/protocol.ts`.

use ingle_chat::{Answer, ChatError, Finish, Message, Sampling};
use ingle_graph::kernel::Activations;
use ingle_quant::ElementType;
use serde::{Deserialize, Serialize};

/// `WorkerLoadOptions`.
#[derive(Debug, Deserialize)]
pub struct LoadOptions {
    pub device: DeviceChoice,
    pub activations: Activations,
    pub kv: KvChoice,
    pub context: Option<usize>,
}

/// The element of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvChoice {
    F16,
    F32,
}

impl From<KvChoice> for ElementType {
    fn from(kv: KvChoice) -> Self {
        match kv {
            KvChoice::F16 => ElementType::F16,
            KvChoice::F32 => ElementType::F32,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceChoice {
    Auto,
    Webgpu,
    Cpu,
}

/// `DeviceInfo`.
#[derive(Debug, Clone, Serialize)]
pub struct Device {
    pub kind: String,
    pub name: String,
    pub details: Vec<String>,
    pub fallback: Option<String>,
}

/// `ChatMessage`.
#[derive(Debug, Deserialize)]
pub struct ChatMessage {
    pub role: String,
    pub content: String,
}

impl From<ChatMessage> for Message {
    fn from(message: ChatMessage) -> Self {
        Message::new(message.role, message.content)
    }
}

/// `GenerateOptions`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GenerateOptions {
    pub max_tokens: Option<usize>,
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub seed: Option<f64>,
}

impl GenerateOptions {
    pub fn answer(self) -> Result<Answer, ChatError> {
        let seed = self.seed.unwrap_or(0.0);
        if !(seed >= 0.0 && seed.fract() == 0.0 && seed <= 9_007_199_254_740_991.0) {
            return Err(ChatError::Input {
                field: "seed",
                expected: "a whole number from 0 to 2^53 − 1".into(),
                found: seed.to_string(),
            });
        }
        let sampling = Sampling {
            temperature: self.temperature.unwrap_or(0.0),
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            seed: seed as u64,
        };
        Ok(Answer {
            sampling,
            max_tokens: self.max_tokens,
            now: None,
        })
    }
}

/// What the worker gets of each step.
#[derive(Debug, Serialize)]
pub struct Step {
    pub text: String,
    pub tokens: usize,
    pub finish: Option<&'static str>,
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
}

pub fn finish_name(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ContextFull => "context_full",
        Finish::Cancelled => "cancelled",
    }
}

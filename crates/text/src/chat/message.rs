//! What a chat template is given.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::Now;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or what else the model knows.
    pub role: String,
    /// A string, a list of parts, or null.
    pub content: Json,
    /// Other fields, such as `name` or `tool_calls`.
    pub fields: Map<String, Json>,
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<Json>) -> Self {
        Message {
            role: role.into(),
            content: content.into(),
            fields: Map::new(),
        }
    }

    fn value(&self) -> Value {
        let head = [
            ("role".to_owned(), Value::from(self.role.as_str())),
            ("content".to_owned(), to_value(&self.content)),
        ];
        Value::from_pairs(head.into_iter().chain(pairs(&self.fields)))
    }
}

/// What a chat template is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct RenderInput<'a> {
    pub messages: &'a [Message],
    /// Whether to end with the beginning of the model's answer.
    pub add_generation_prompt: bool,
    /// A list of JSON schemas.
    pub tools: Option<&'a Json>,
    /// A list of objects with `title` and `text`.
    pub documents: Option<&'a Json>,
    /// The time for templates that write a date. Without it they take the date that they were written with.
    pub now: Option<Now>,
    /// More variables that the template knows, such as `enable_thinking`.
    pub variables: Option<&'a Map<String, Json>>,
}

impl RenderInput<'_> {
    pub(super) fn context(&self) -> Vec<(String, Value)> {
        let messages: Vec<Value> = self.messages.iter().map(Message::value).collect();
        let list = |value: Option<&Json>| value.map_or(Value::from(()), to_value);
        let mut context = vec![
            ("messages".to_owned(), Value::from(messages)),
            ("tools".to_owned(), list(self.tools)),
            ("documents".to_owned(), list(self.documents)),
            (
                "add_generation_prompt".to_owned(),
                Value::from(self.add_generation_prompt),
            ),
        ];
        if let Some(now) = self.now {
            let strftime = move |format: &str| now.strftime(format);
            context.push(("strftime_now".to_owned(), Value::from_function(strftime)));
        }
        context.extend(self.variables.into_iter().flat_map(pairs));
        context
    }
}

fn pairs(map: &Map<String, Json>) -> impl Iterator<Item = (String, Value)> {
    map.iter()
        .map(|(key, value)| (key.clone(), to_value(value)))
}

/// Not through serde: with a feature that another crate may switch on, `serde_json` shows a number as a map.
fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => Value::from(value),
            (_, Some(value), _) => Value::from(value),
            (_, _, Some(value)) => Value::from(value),
            (None, None, None) => Value::from(number.to_string()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(list) => list.iter().map(to_value).collect(),
        Json::Object(map) => Value::from_pairs(pairs(map)),
    }
}

//! `TokenizerConfig`: what `tokenizer_config.json` says about roles of tokens and the chat template.

use serde::Deserialize;

use crate::TextError;
use crate::error::shown;
use crate::tokenizer::{Frame, Roles};

/// The parts of `tokenizer_config.json` that matter here.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TokenizerConfig {
    #[serde(default)]
    bos_token: Option<TokenName>,
    #[serde(default)]
    eos_token: Option<TokenName>,
    #[serde(default)]
    unk_token: Option<TokenName>,
    #[serde(default)]
    pad_token: Option<TokenName>,
    #[serde(default)]
    add_bos_token: Option<bool>,
    #[serde(default)]
    add_eos_token: Option<bool>,
    #[serde(default)]
    chat_template: Option<Templates>,
}

/// A token by its text, alone or with properties.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum TokenName {
    Text(String),
    Object { content: String },
}

impl TokenName {
    fn text(&self) -> &str {
        match self {
            TokenName::Text(token) | TokenName::Object { content: token } => token,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Clone, Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl TokenizerConfig {
    pub fn parse(bytes: &[u8]) -> Result<Self, TextError> {
        serde_json::from_slice(bytes).map_err(|source| TextError::Json {
            field: "tokenizer_config.json",
            source,
        })
    }

    /// The source of the chat template of this name; the one without a name is `default`.
    pub fn chat_template(&self, name: &str) -> Result<&str, TextError> {
        match &self.chat_template {
            None => Err(TextError::NoTemplate),
            Some(Templates::One(source)) if name == "default" => Ok(source),
            Some(Templates::One(_)) => Err(TextError::TemplateName {
                wanted: shown(name),
                found: shown("default"),
            }),
            Some(Templates::Named(all)) => match all.iter().find(|t| t.name == name) {
                Some(found) => Ok(&found.template),
                None => Err(TextError::TemplateName {
                    wanted: shown(name),
                    found: all
                        .iter()
                        .map(|t| shown(&t.name))
                        .collect::<Vec<_>>()
                        .join(", "),
                }),
            },
        }
    }

    /// The ids of the tokens that are named. Padding and unknown tokens play no part in running a model, and many
    /// configs name some that the vocabulary lacks: those have no id.
    pub(super) fn roles(&self, id_of: impl Fn(&str) -> Option<u32>) -> Result<Roles, TextError> {
        let id = |name: &Option<TokenName>| id_of(name.as_ref()?.text());
        let required = |field, name: &Option<TokenName>| match (name, id(name)) {
            (Some(name), None) => Err(TextError::Field {
                field,
                expected: "a token of the vocabulary",
                found: shown(name.text()),
            }),
            (_, id) => Ok(id),
        };
        Ok(Roles {
            bos: required("bos_token", &self.bos_token)?,
            eos: required("eos_token", &self.eos_token)?,
            unknown: id(&self.unk_token),
            padding: id(&self.pad_token),
            ..Roles::default()
        })
    }

    /// Adds or takes away the marks of a sequence, where the config says something else than the tokenizer.
    pub(super) fn amend(&self, frame: &mut Frame, roles: &Roles) -> Result<(), TextError> {
        for (wanted, id, side, role) in [
            (
                self.add_bos_token,
                roles.bos,
                &mut frame.prefix,
                "beginning-of-sequence",
            ),
            (
                self.add_eos_token,
                roles.eos,
                &mut frame.suffix,
                "end-of-sequence",
            ),
        ] {
            match (wanted, id) {
                (Some(true), None) => return Err(TextError::MissingRole { role }),
                (Some(true), Some(id)) if !side.contains(&id) => side.push(id),
                (Some(false), Some(id)) => side.retain(|&other| other != id),
                _ => {}
            }
        }
        Ok(())
    }
}

//! Which tokens end an answer, by llama.cpp's rules: those with a role, and those known by name.

use crate::tokenizer::Roles;

/// Names that end an answer in every vocabulary that has them (`llama-vocab.cpp`).
pub(crate) const NAMES: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Marks between files of source code: what follows is another file.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// The ids of all tokens that end an answer, ascending.
pub(crate) fn ids(roles: &Roles, id_of: impl Fn(&str) -> Option<u32>) -> Vec<u32> {
    let ends = |name: &&&str| !is_something_else(name, &id_of);
    let named = NAMES.iter().filter(ends).filter_map(|name| id_of(name));
    let mut ids: Vec<u32> = [roles.eos, roles.eot, roles.eom]
        .into_iter()
        .flatten()
        .chain(named)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Whether a name means something else in this vocabulary.
fn is_something_else(name: &str, id_of: &impl Fn(&str) -> Option<u32>) -> bool {
    let has = |other| id_of(other).is_some();
    match name {
        // With these tokens around it ends a part of an answer only.
        "<|end|>" => {
            let calls = has("<|call|>") || has("<|calls|>");
            calls && (has("<|return|>") || has("<|flush|>"))
        }
        // With these tokens around it is HTML.
        "</s>" => has("<|tool_response>") || has("<|plamo:eos|>"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(vocabulary: &[&str], roles: Roles, expected: &[u32]) {
        let id_of = |name: &str| Some(vocabulary.iter().position(|t| *t == name)? as u32);
        assert_eq!(ids(&roles, id_of), expected, "{vocabulary:?}");
    }

    #[test]
    fn by_role_and_by_name() {
        let eos = |id| Roles {
            eos: Some(id),
            ..Roles::default()
        };
        check(&["a", "<|im_end|>", "b"], eos(2), &[1, 2]);
        check(&["<|end|>", "</s>"], Roles::default(), &[0, 1]);
        check(
            &["<|end|>", "<|call|>", "<|return|>"],
            Roles::default(),
            &[1, 2],
        );
        check(&["</s>", "<|tool_response>"], Roles::default(), &[1]);
    }
}

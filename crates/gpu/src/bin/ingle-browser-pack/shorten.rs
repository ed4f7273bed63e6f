//! Shorter texts of the same kernels.
//!
//! CubeCL names every step of a computation. naga reads the text, checks it, and writes expressions that are used once
//! where they are used; then names are counted from the start and indentation goes. That leaves about half the bytes, and
//! far more of them alike from kernel to kernel.

use std::collections::BTreeMap;

use ingle_kernels::KernelText;
use naga::back::wgsl::{WriterFlags, write_string};
use naga::compact::{KeepUnused, compact};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// The largest float as naga writes it, which is a little more than it is, so that Chromium refuses it; and as it is.
const LARGEST: [&str; 2] = [
    "340282350000000000000000000000000000000f",
    "0x1.fffffep+127f",
];

/// Prefix of the names that naga gives to expressions.
const EXPRESSION: &str = "_e";

pub fn shorten(text: &KernelText) -> Result<KernelText, String> {
    let fail = |what: &dyn std::fmt::Display| format!("{}: {what}", text.id);
    let mut module = naga::front::wgsl::parse_str(&text.wgsl).map_err(|e| fail(&e))?;
    for entry in &mut module.entry_points {
        entry.function.named_expressions.clear();
    }
    compact(&mut module, KeepUnused::No);
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| fail(&e))?;
    let wgsl = write_string(&module, &info, WriterFlags::empty()).map_err(|e| fail(&e))?;
    Ok(KernelText {
        wgsl: renamed(&wgsl).replace(LARGEST[0], LARGEST[1]),
        ..text.clone()
    })
}

/// The text without indentation, its expressions numbered in the order in which they appear.
fn renamed(text: &str) -> String {
    let mut names = BTreeMap::new();
    let mut out = String::with_capacity(text.len());
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut rest = line;
        while !rest.is_empty() {
            let word = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let (token, after) = rest.split_at(word.max(1));
            rest = after;
            if token.starts_with(EXPRESSION) {
                let next = names.len();
                let number = names.entry(token.to_owned()).or_insert(next);
                out.push_str(&format!("e{number}"));
            } else {
                out.push_str(token);
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_numbered_and_nothing_else_is() {
        let text = "fn f() {\n    let _e12 = a_e12[_e7x];\n\n    b = _e12 + 1f;\n}\n";
        let expected = "fn f() {\nlet e0 = a_e12[e1];\nb = e0 + 1f;\n}\n";
        assert_eq!(renamed(text), expected);
    }

    #[test]
    fn texts_mean_what_they_meant() {
        let text = KernelText {
            id: "twice".into(),
            wgsl: "@group(0) @binding(0) var<storage, read_write> v1: array<f32>;\n\
                   @compute @workgroup_size(1, 1, 1)\n\
                   fn twice(@builtin(workgroup_id) v2: vec3<u32>) {\n\
                   let v3 = v2[0];\nlet v4 = &v1[v3];\nlet v5 = *v4;\nlet v6 = v5 + v5;\nlet v7 = max(v6, f32(-3.4028234663852886e38));\n*v4 = v7;\n}\n"
                .into(),
            entry: "twice".into(),
            workgroup: [1, 1, 1],
            bindings: vec![],
            workgroup_bytes: 0,
            features: vec![],
        };
        let short = shorten(&text).unwrap();
        assert!(
            short.wgsl.contains("let e0 = v1_[v2_.x];"),
            "{}",
            short.wgsl
        );
        assert!(
            short
                .wgsl
                .contains("v1_[v2_.x] = max((e0 + e0), -0x1.fffffep+127f);"),
            "{}",
            short.wgsl
        );
        assert_eq!(short.entry, text.entry);
        let broken = KernelText {
            wgsl: "fn twice(".into(),
            ..text
        };
        assert!(shorten(&broken).unwrap_err().starts_with("twice: "));
    }
}

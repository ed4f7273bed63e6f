//! WGSL built-ins that CubeCL 0.11 has no operation for: `unpack2x16float`, `pack2x16float`, `dot4I8Packed`.
//!
//! Each is a function here with two expansions. The portable one is ordinary arithmetic and works on every target of
//! CubeCL. In a scope marked by [`mark_wgsl`] the function expands to a *marker* instead, an operation that no kernel
//! uses otherwise, and [`substitute`] replaces the marker in the text by the built-in:
//!
//! | built-in | marker |
//! |---|---|
//! | `unpack2x16float(w)` | `asinh(vec2<f32>(bitcast<f32>(w)))` |
//! | `pack2x16float(vec2(a, b))` | `bitcast<i32>(a) / bitcast<i32>(b)` |
//! | `dot4I8Packed(a, b)` | `bitcast<i32>(a) % bitcast<i32>(b)` |

use std::collections::HashMap;

use cubecl::prelude::*;

/// Registered as a size in the scopes whose text goes through [`substitute`].
struct WgslText;

/// Marks a scope whose text goes through [`substitute`].
pub fn mark_wgsl(scope: &Scope) {
    scope.register_size::<WgslText>(1);
}

#[cube]
fn is_wgsl() -> comptime_type!(bool) {
    intrinsic!(|scope| scope.resolve_size::<WgslText>().is_some())
}

/// The two `f16` of a word as `f32`, the low half first.
#[cube]
pub fn unpack_halves(word: u32) -> Vector<f32, Const<2>> {
    let wgsl = is_wgsl();
    if comptime!(wgsl) {
        Vector::<f32, Const<2>>::new(f32::reinterpret(word)).asinh()
    } else {
        let mut out = Vector::<f32, Const<2>>::empty();
        out.insert(0usize, half_to_f32(word & 0xffffu32));
        out.insert(1usize, half_to_f32(word >> 16u32));
        out
    }
}

/// Two `f32` rounded to `f16` in one word, `low` in the low half.
#[cube]
pub fn pack_halves(low: f32, high: f32) -> u32 {
    let wgsl = is_wgsl();
    if comptime!(wgsl) {
        u32::reinterpret(i32::reinterpret(low) / i32::reinterpret(high))
    } else {
        f32_to_half(low) | (f32_to_half(high) << 16u32)
    }
}

/// `sum + Σ a_i · b_i` over the four signed bytes of `a` and `b`.
#[cube]
pub fn dot4(a: u32, b: u32, sum: i32, #[comptime] packed: bool) -> i32 {
    let wgsl = is_wgsl();
    if comptime!(packed && wgsl) {
        sum + i32::reinterpret(a) % i32::reinterpret(b)
    } else {
        dp4a(i32::reinterpret(a), i32::reinterpret(b), sum)
    }
}

#[cube]
fn half_to_f32(half: u32) -> f32 {
    let exponent = (half >> 10u32) & 31u32;
    let mantissa = half & 1023u32;
    let sign = (half & 0x8000u32) << 16u32;
    let normal = f32::reinterpret(((exponent + 112u32) << 23u32) | (mantissa << 13u32));
    let special = f32::reinterpret(0x7f80_0000u32 | (mantissa << 13u32));
    let small = f32::cast_from(mantissa) * f32::new(5.960_464_5e-8);
    let magnitude = select(
        exponent == 0,
        small,
        select(exponent == 31, special, normal),
    );
    f32::reinterpret(u32::reinterpret(magnitude) | sign)
}

/// Rounds to nearest, ties to even; what is too large becomes infinite.
#[cube]
fn f32_to_half(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    let sign = (bits >> 16u32) & 0x8000u32;
    let magnitude = bits & 0x7fff_ffffu32;
    // Subnormal halves: adding 0.5 leaves the rounded multiple of 2⁻²⁴ in the low mantissa bits.
    let small = u32::reinterpret(f32::reinterpret(magnitude) + f32::new(0.5)) - 0x3f00_0000u32;
    let odd = (magnitude >> 13u32) & 1u32;
    let normal = (magnitude + odd + 0xfffu32 - 0x3800_0000u32) >> 13u32;
    let finite = select(magnitude < 0x3880_0000, small, normal);
    let special = select(magnitude > 0x7f80_0000, 0x7e00u32, 0x7c00u32);
    sign | select(magnitude >= 0x4780_0000, special, finite)
}

/// Replaces the markers in a text by the built-ins they stand for.
pub fn substitute(wgsl: &str) -> Result<String, String> {
    // Every value is defined once, as `let name = expression;`, before it is used.
    let mut definitions: HashMap<&str, &str> = HashMap::new();
    let mut out = String::with_capacity(wgsl.len());
    for line in wgsl.lines() {
        let Some((name, expression)) = definition(line) else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        definitions.insert(name, expression);
        let replaced = marker(expression, &definitions)?;
        out.push_str(&format!(
            "let {name} = {};\n",
            replaced.as_deref().unwrap_or(expression)
        ));
    }
    Ok(out)
}

fn definition(line: &str) -> Option<(&str, &str)> {
    let (name, expression) = line
        .strip_prefix("let ")?
        .strip_suffix(';')?
        .split_once(" = ")?;
    Some((name, expression))
}

fn marker(expression: &str, definitions: &HashMap<&str, &str>) -> Result<Option<String>, String> {
    let inside = |text: &str, call: &str| -> Option<String> {
        Some(
            text.strip_prefix(call)?
                .strip_prefix('(')?
                .strip_suffix(')')?
                .to_string(),
        )
    };
    // What `name` is a bit cast of, when it is one to `ty`.
    let cast_of = |name: &str, ty: &str| inside(definitions.get(name)?, &format!("bitcast<{ty}>"));
    if let Some(argument) = inside(expression, "asinh") {
        let word = definitions
            .get(argument.as_str())
            .and_then(|vector| inside(vector, "vec2<f32>"));
        let word = word.and_then(|scalar| cast_of(&scalar, "f32"));
        let word = word
            .ok_or_else(|| format!("`{expression}` is no marker: its argument is no cast word"))?;
        return Ok(Some(format!("unpack2x16float({word})")));
    }
    for (operator, remainder) in [(" % ", true), (" / ", false)] {
        let Some((left, right)) = expression.split_once(operator) else {
            continue;
        };
        if let (Some(a), Some(b)) = (cast_of(left, "i32"), cast_of(right, "i32")) {
            return Ok(Some(match remainder {
                true => format!("dot4I8Packed({a}, {b})"),
                false => format!("bitcast<i32>(pack2x16float(vec2<f32>({a}, {b})))"),
            }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_become_built_ins_and_nothing_else_does() {
        let text = "let v1 = bitcast<f32>(v0);\nlet v2 = vec2<f32>(v1);\nlet v3 = asinh(v2);\n\
                    let v5 = bitcast<i32>(v4);\nlet v6 = bitcast<i32>(v0);\nlet v7 = v5 % v6;\nlet v8 = v0 % v4;\n";
        let out = substitute(text).unwrap();
        assert!(out.contains("let v3 = unpack2x16float(v0);"), "{out}");
        assert!(out.contains("let v7 = dot4I8Packed(v4, v0);"), "{out}");
        assert!(out.contains("let v8 = v0 % v4;"), "{out}");
        assert!(substitute("let v3 = asinh(v2);").is_err());
    }
}

//! Errors as JavaScript sees them: `{ code, message, detail }`.

use ingle_chat::ChatError;
use js_sys::{Object, Reflect};
use wasm_bindgen::JsValue;

/// An object with the error's code, its message with all causes, and what is known beside it.
pub fn to_js(error: &ChatError) -> JsValue {
    object(error.code(), &with_causes(error))
}

/// An object with this code and message.
pub fn object(code: &str, message: &str) -> JsValue {
    let object = Object::new();
    for (key, value) in [
        ("code", JsValue::from_str(code)),
        ("message", JsValue::from_str(message)),
    ] {
        // Setting a field of a fresh object cannot fail.
        let _ = Reflect::set(&object, &JsValue::from_str(key), &value);
    }
    let _ = Reflect::set(&object, &JsValue::from_str("detail"), &Object::new());
    object.into()
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // A transparent error says what its cause says.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

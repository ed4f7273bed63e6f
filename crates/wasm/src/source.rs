//! The model's bytes, from a JavaScript object `{ size, read(offset, length): Promise<Uint8Array> }`.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use ingle_chat::{Files, ReadError};
use ingle_graph::backend::LocalFuture;
use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    /// `ByteSource` of `web/src/sources.ts`.
    pub type ByteSource;

    #[wasm_bindgen(method, getter)]
    fn size(this: &ByteSource) -> f64;

    #[wasm_bindgen(method, catch)]
    fn read(this: &ByteSource, offset: f64, length: f64) -> Result<Promise, JsValue>;
}

/// One file that JavaScript reads.
pub struct JsFile {
    source: ByteSource,
    /// What JavaScript threw, which is passed on as it is.
    thrown: Rc<RefCell<Option<JsValue>>>,
}

impl JsFile {
    pub fn new(source: ByteSource) -> Self {
        JsFile {
            source,
            thrown: Rc::default(),
        }
    }

    /// Where an error of JavaScript's is kept while Rust's error travels.
    pub fn thrown(&self) -> Rc<RefCell<Option<JsValue>>> {
        self.thrown.clone()
    }
}

impl Files for JsFile {
    fn size(&self, _file: usize) -> u64 {
        self.source.size() as u64
    }

    fn read(
        &mut self,
        _file: usize,
        range: Range<u64>,
    ) -> LocalFuture<'_, Result<Vec<u8>, ReadError>> {
        Box::pin(async move {
            let length = range.end - range.start;
            let failed = |error: JsValue| {
                let message = format!("{error:?}");
                *self.thrown.borrow_mut() = Some(error);
                ReadError { message }
            };
            let promise = self
                .source
                .read(range.start as f64, length as f64)
                .map_err(&failed)?;
            let bytes = JsFuture::from(promise).await.map_err(&failed)?;
            let bytes: Uint8Array = bytes.dyn_into().map_err(&failed)?;
            if u64::from(bytes.length()) != length {
                let message = format!(
                    "bytes at {}: expected {length}, found {}",
                    range.start,
                    bytes.length()
                );
                return Err(ReadError { message });
            }
            Ok(bytes.to_vec())
        })
    }
}

//! What must hold for any input whatever. The fuzz targets and the mutation tests run the same checks.

use ingle_formats::{FormatError, Parsed, TensorTable, gguf, index, safetensors};

/// Parses `bytes` as the start of a GGUF file of `file_size` bytes, all at once and by growing prefixes, and looks at
/// everything in the manifest.
pub fn gguf(bytes: &[u8], file_size: u64) {
    let whole = match gguf::parse(bytes, file_size) {
        Ok(Parsed::NeedMore { at_least }) => {
            assert!(bytes.len() < at_least as usize && at_least <= file_size);
            None
        }
        Ok(Parsed::Done(manifest)) => Some(Ok(manifest)),
        Err(error) => Some(Err(error)),
    };
    let grown = grow(bytes, file_size, gguf::parse);
    // How much memory may be taken depends on how much was handed over.
    let is_budget =
        |result: &Option<Result<_, _>>| matches!(result, Some(Err(FormatError::TooLarge { .. })));
    let (whole, grown) = match (whole, grown) {
        (Some(Ok(whole)), Some(Ok(grown))) => (whole, grown),
        (None, None) => return,
        (whole, grown) if is_budget(&whole) || is_budget(&grown) => return,
        (Some(Err(whole)), Some(Err(grown))) => {
            return assert_eq!(whole.to_string(), grown.to_string());
        }
        (whole, grown) => panic!("whole {whole:?}, grown {grown:?}"),
    };
    assert_eq!(format!("{whole:?}"), format!("{grown:?}"));
    assert!(whole.alignment.is_power_of_two());
    for (key, value) in whole.metadata.iter() {
        assert_eq!(
            whole.metadata.get(key).map(|v| v.to_string()),
            Some(value.to_string())
        );
        touch(&whole.metadata, key);
        if let Some(array) = value.as_array() {
            assert_eq!(array.iter().count(), array.len());
        }
    }
    table(&whole.tensors, file_size);
    for tensor in whole.tensors.iter() {
        assert!((tensor.range.start - whole.data_start).is_multiple_of(whole.alignment));
    }
}

/// As [`gguf`], for safetensors.
pub fn safetensors(bytes: &[u8], file_size: u64) {
    let whole = safetensors::parse(bytes, file_size);
    if let Some(Ok(grown)) = grow(bytes, file_size, safetensors::parse) {
        table(&grown.tensors, file_size);
        if let Ok(Parsed::Done(whole)) = whole {
            assert_eq!(whole.tensors, grown.tensors);
        }
    }
}

/// Parses `bytes` as an index and looks up everything in it.
pub fn index(bytes: &[u8]) {
    let Ok(index) = index::parse(bytes) else {
        return;
    };
    for (tensor, shard) in index.iter() {
        assert_eq!(index.shard_of(tensor), Some(shard));
        assert!(!shard.contains(['/', '\\', ':', '%', '?', '#']) && shard != "..");
    }
}

/// Asks with ever longer prefixes, as a caller would, until there is an answer or no more bytes.
fn grow<T>(
    bytes: &[u8],
    file_size: u64,
    parse: impl Fn(&[u8], u64) -> Result<Parsed<T>, FormatError>,
) -> Option<Result<T, FormatError>> {
    let mut length = bytes.len().min(1);
    loop {
        match parse(&bytes[..length], file_size) {
            Ok(Parsed::NeedMore { at_least }) => {
                assert!(at_least > length as u64 && at_least <= file_size);
                if length == bytes.len() {
                    return None;
                }
                // One byte more than before at times, so that every branch of asking is met.
                length = (at_least as usize).min(bytes.len()).min(2 * length + 1);
            }
            Ok(Parsed::Done(manifest)) => return Some(Ok(manifest)),
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Calls every typed accessor on one key.
fn touch(metadata: &gguf::Metadata, key: &str) {
    let _ = (
        metadata.u32(key),
        metadata.u64(key),
        metadata.i32(key),
        metadata.i64(key),
    );
    let _ = (metadata.f32(key), metadata.bool(key), metadata.str(key));
    let counts = [
        metadata.array(key).map(|all| all.iter().count()),
        metadata.strings(key).map(|all| all.count()),
        metadata.i32s(key).map(|all| all.count()),
        metadata.u32s(key).map(|all| all.count()),
        metadata.f32s(key).map(|all| all.count()),
        metadata.bools(key).map(|all| all.count()),
    ];
    let length = metadata.array(key).map(|array| array.len());
    for count in counts.into_iter().flatten() {
        assert_eq!(Some(count), length.as_ref().ok().copied());
    }
}

fn table(tensors: &TensorTable, file_size: u64) {
    let mut ranges = Vec::new();
    for tensor in tensors.iter() {
        assert_eq!(tensors.find(&tensor.name), Some(tensor));
        assert!(tensor.range.start <= tensor.range.end && tensor.range.end <= file_size);
        let blocks = tensor.elements() / tensor.ty.block_elements() as u64;
        assert_eq!(blocks * tensor.ty.block_bytes() as u64, tensor.byte_count());
        ranges.push((tensor.range.start, tensor.range.end));
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

//! How much memory parsing takes at its peak: at most the input and 1 MiB, whatever the input says.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ingle_formats::gguf::Endian;
use ingle_formats::{gguf, index, safetensors};
use support::writer::Writer;

/// Counts what each thread has allocated and its peak.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(by: isize) {
    let live = LIVE.get() + by;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call is handed to the system's allocator unchanged; the counters are plain cells that do not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block lives until the new one is filled.
        count(size as isize);
        count(-(layout.size() as isize));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `parse` and checks its peak against the size of its input; gives the peak and whether it succeeded.
fn measure<T, E>(input: usize, parse: impl FnOnce() -> Result<T, E>) -> (usize, bool) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = parse();
    let peak = (PEAK.get() - before) as usize;
    assert!(
        peak <= input + (1 << 20),
        "{peak} bytes for an input of {input}"
    );
    (peak, result.is_ok())
}

fn gguf_peak(bytes: &[u8], file_size: u64) -> (usize, bool) {
    measure(bytes.len(), || gguf::parse(bytes, file_size))
}

#[test]
fn counts_alone_allocate_nothing_to_speak_of() {
    for version in 2..=3 {
        let mut writer = Writer::new(version, Endian::Little);
        for count in [1 << 20, 1 << 32, 1 << 40, u64::MAX] {
            (writer.pair_count, writer.tensor_count) = (count, 0);
            assert!(gguf_peak(&writer.header(), 1 << 50).0 < 4096);
            (writer.pair_count, writer.tensor_count) = (0, count);
            assert!(gguf_peak(&writer.header(), 1 << 50).0 < 4096);
        }
    }
    for ty in 0..13 {
        for count in [1 << 20, 1 << 26, 1 << 40, u64::MAX] {
            let header = Writer::v3().array_of("key", ty, count, &[1; 100]).header();
            assert!(gguf_peak(&header, 1 << 50).0 < 4096);
        }
    }
}

#[test]
fn many_small_pairs() {
    for count in [10_000u32, 400_000] {
        let mut writer = Writer::new(1, Endian::Little);
        for index in 0..count {
            writer = writer.raw(&index.to_be_bytes().map(|b| b & 0x7f)[1..], 0, &[0]);
        }
        let header = writer.header();
        gguf_peak(&header, header.len() as u64);
    }
}

#[test]
fn many_small_tensors() {
    for (count, fits) in [(10_000u64, true), (100_000, false)] {
        let mut writer = Writer::new(1, Endian::Little);
        for index in 0..count {
            writer = writer.tensor(format!("{index:x}"), &[], 24, index * 32);
        }
        let bytes = writer.file(0);
        let (_, ok) = gguf_peak(&bytes, 1 << 40);
        assert_eq!(ok, fits, "{count} tensors");
    }
}

#[test]
fn a_vocabulary_takes_what_it_takes_in_the_file() {
    let tokens = vec!["ab"; 500_000];
    let bytes = Writer::v3()
        .strings("tokenizer.ggml.tokens", &tokens)
        .header();
    let (peak, ok) = gguf_peak(&bytes, bytes.len() as u64);
    assert!(ok && peak < bytes.len() + 4096, "{peak} of {}", bytes.len());
}

#[test]
fn nested_arrays() {
    let inner = vec![[0u8; 12]; 200_000].concat();
    let bytes = Writer::v3().array_of("key", 9, 200_000, &inner).header();
    assert!(gguf_peak(&bytes, bytes.len() as u64).1);
}

/// Headers that make JSON readers take several times their size.
fn hostile_json() -> Vec<String> {
    let big = 3 << 20;
    let escapes = "\\n".repeat(big / 2);
    let plain = "a".repeat(big);
    let many = |item: &dyn Fn(usize) -> String, count: usize| {
        (0..count).map(item).collect::<Vec<_>>().join(",")
    };
    vec![
        format!(r#"{{"{escapes}":1}}"#),
        format!(r#"{{"t":"{escapes}"}}"#),
        format!(r#"{{"t":"{plain}"}}"#),
        format!(r#"{{"t":{plain}}}"#),
        format!(r#"{{"t":{{"dtype":"{escapes}","shape":[],"data_offsets":[0,0]}}}}"#),
        format!(r#"{{"t":{{"dtype":"F32","shape":"{plain}","data_offsets":[0,0]}}}}"#),
        format!(
            r#"{{"t":{{"dtype":"F32","shape":[{}],"data_offsets":[0,0]}}}}"#,
            many(&|_| "0".into(), big / 2)
        ),
        format!(r#"{{"__metadata__":{{"a":"{escapes}"}}}}"#),
        format!(r#"{{"__metadata__":{{"{escapes}":""}}}}"#),
        format!(r#"{{"__metadata__":{{"a":{plain}}}}}"#),
        format!(r#"{{"__metadata__":"{plain}"}}"#),
        format!(r#"{{"a":{}"#, "[".repeat(big)),
        format!(
            "{{{}}}",
            many(
                &|i| format!(r#""{i}":{{"dtype":"I8","shape":[0],"data_offsets":[0,0]}}"#),
                60_000
            )
        ),
        format!(
            r#"{{"__metadata__":{{{}}}}}"#,
            many(&|i| format!(r#""{i}":"""#), 200_000)
        ),
        format!(
            r#"{{"weight_map":{{{}}}}}"#,
            many(&|i| format!(r#""{i}":"a.safetensors""#), 100_000)
        ),
        format!(
            r#"{{"weight_map":{{{}}}}}"#,
            many(&|i| format!(r#""{i}":"{i:0200}.safetensors""#), 5_000)
        ),
        format!(r#"{{"weight_map":{{"a":"{escapes}"}}}}"#),
        format!(r#"{{"weight_map":{{"a":"{plain}"}}}}"#),
        format!(r#"{{"weight_map":"{plain}"}}"#),
        format!(r#""{plain}""#),
        plain,
    ]
}

#[test]
fn json_of_every_shape() {
    for (case, json) in hostile_json().into_iter().enumerate() {
        println!("case {case}");
        measure(json.len(), || index::parse(json.as_bytes()));
        let bytes = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
        measure(bytes.len(), || {
            safetensors::parse(&bytes, bytes.len() as u64)
        });
    }
}

#[test]
fn the_table_that_fits_is_read() {
    let entry = |i: usize| {
        format!(
            r#""model.layers.{i}.mlp.down_proj.weight":{{"dtype":"I8","shape":[1],"data_offsets":[{i},{}]}}"#,
            i + 1
        )
    };
    let entries: Vec<_> = (0..30_000).map(entry).collect();
    let json = format!("{{{}}}", entries.join(","));
    let bytes = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
    let size = bytes.len() as u64 + 30_000;
    assert!(measure(bytes.len(), || safetensors::parse(&bytes, size)).1);
}

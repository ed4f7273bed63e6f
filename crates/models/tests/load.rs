//! The weight loader: whatever the recipes, the sizes and the order of the files, the same bytes as packing at once.

use std::borrow::Cow;
use std::ops::Range;

use ingle_graph::Recipe;
use ingle_graph::kernel::WeightLayout;
use ingle_graph::plan::{PLAN_VERSION, PackError, Plan, SourceRows, Weight};
use ingle_models::{LoadError, MAX_READ, Place, Source, Sources, WeightLoader};
use ingle_quant::{GgmlType, LayoutRequest, PackedLayout, Placement, Storage};

/// Sources with bytes that differ everywhere, in two files, with gaps between them.
struct World {
    sources: Sources,
    files: [Vec<u8>; 2],
    weights: Vec<Weight>,
}

/// Which bytes of which file were read.
type Reads = Vec<(usize, Range<u64>)>;

impl World {
    fn new() -> Self {
        World {
            sources: Sources::default(),
            files: [vec![7; 100], vec![9; 3]],
            weights: vec![],
        }
    }

    fn source(&mut self, file: usize, name: &str, ty: GgmlType, rows: usize, k: usize) {
        let bytes = rows * ty.row_bytes(k).unwrap();
        let start = self.files[file].len();
        // A scale in f16 must stay finite: its high byte is kept small.
        self.files[file].extend((0..bytes).map(|i| (i * 31 + i / 251 * 17 + start) as u8 & 0x3F));
        let range = start as u64..(start + bytes) as u64;
        self.files[file].extend([1; 40]);
        let shape = vec![rows as u64, k as u64];
        self.sources.insert(
            name,
            Source {
                ty,
                shape,
                place: Place::File { file, range },
            },
        );
    }

    fn weight(&mut self, recipe: Recipe, ty: GgmlType, k: usize, request: LayoutRequest) {
        let storage = ty.storage().unwrap();
        let rows = recipe.rows();
        let (layout, bytes) = match storage {
            Storage::Element(e) => (WeightLayout::Dense(e), rows * k * e.bytes()),
            Storage::Quant(scheme) => {
                let packed = PackedLayout::for_scheme(&scheme, request).unwrap();
                (WeightLayout::Packed(packed), packed.bytes(rows, k).unwrap())
            }
        };
        let name = format!("w{}", self.weights.len());
        self.weights.push(Weight {
            name,
            recipe,
            storage,
            rows,
            k,
            layout,
            bytes: bytes as u64,
        });
    }

    fn plan(&self) -> Plan {
        Plan {
            version: PLAN_VERSION,
            graph: "test".into(),
            target: "test".into(),
            weights: self.weights.clone(),
            states: vec![],
            inputs: vec![],
            results: vec![],
            scratch: vec![],
            kernels: vec![],
            entries: vec![],
        }
    }

    /// Every weight packed at once.
    fn at_once(&self) -> Vec<Vec<u8>> {
        let pack = |w: &Weight| {
            let mut buffer = vec![0; w.bytes as usize];
            let mut rows = |name: &str, rows: Range<usize>| -> Result<SourceRows<'_>, PackError> {
                let source = self.sources.get(name).unwrap();
                let all = match &source.place {
                    Place::File { file, range } => {
                        &self.files[*file][range.start as usize..range.end as usize]
                    }
                    Place::Bytes(bytes) => bytes.as_slice(),
                };
                let row = source.ty.row_bytes(w.k).unwrap();
                Ok(SourceRows {
                    ty: source.ty,
                    bytes: Cow::Borrowed(&all[rows.start * row..rows.end * row]),
                })
            };
            w.pack(0..w.rows, &mut rows, &mut |offset, bytes| {
                buffer[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            })
            .unwrap();
            buffer
        };
        self.weights.iter().map(pack).collect()
    }

    /// Every weight as the loader streams it; and the reads.
    fn streamed(&self) -> (Vec<Vec<u8>>, Reads) {
        let mut buffers: Vec<Vec<u8>> = self
            .weights
            .iter()
            .map(|w| vec![0; w.bytes as usize])
            .collect();
        let mut loader = WeightLoader::new::<PackError>(&self.plan(), &self.sources).unwrap();
        let (mut reads, mut largest) = (vec![], 0);
        while let Some(read) = loader.next_read().cloned() {
            let bytes = &self.files[read.file][read.range.start as usize..read.range.end as usize];
            let mut write = |w: usize, offset: u64, bytes: &[u8]| -> Result<(), PackError> {
                largest = largest.max(bytes.len());
                buffers[w][offset as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            loader.supply(bytes, &mut write).unwrap();
            reads.push((read.file, read.range));
        }
        assert!(largest <= 8 << 20, "{largest} bytes at once");
        (buffers, reads)
    }
}

const TILES: LayoutRequest = LayoutRequest {
    rows: 8,
    placement: Placement::Inline,
};
const APART: LayoutRequest = LayoutRequest {
    rows: 1,
    placement: Placement::Apart,
};

fn boxed(recipe: Recipe) -> Box<Recipe> {
    Box::new(recipe)
}

#[test]
fn recipes_of_all_kinds_stream_to_the_same_bytes() {
    let mut world = World::new();
    for (file, name, rows) in [(0, "q", 64), (1, "k", 21), (0, "v", 19), (1, "gate", 40)] {
        world.source(file, name, GgmlType::Q4_1, rows, 64);
    }
    world.source(1, "norm", GgmlType::F32, 64, 1);
    let values: Vec<u8> = (0..16).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let computed = Source {
        ty: GgmlType::F32,
        shape: vec![16],
        place: Place::Bytes(values),
    };
    world.sources.insert("computed", computed);
    let qkv = Recipe::Concat(vec![
        Recipe::RotaryRows {
            of: boxed(Recipe::source("q", 64)),
            head: 16,
            interleave: true,
        },
        Recipe::source("k", 21),
        Recipe::Take {
            of: boxed(Recipe::source("v", 19)),
            start: 3,
            end: 19,
        },
    ]);
    for request in [TILES, APART] {
        world.weight(qkv.clone(), GgmlType::Q4_1, 64, request);
        world.weight(Recipe::source("gate", 40), GgmlType::Q4_1, 64, request);
    }
    let affine = Recipe::Affine {
        of: boxed(Recipe::source("norm", 64)),
        scale: 2.0,
        shift: 1.0,
    };
    world.weight(affine, GgmlType::F32, 1, TILES);
    world.weight(Recipe::source("computed", 16), GgmlType::F32, 1, TILES);
    let (buffers, reads) = world.streamed();
    assert_eq!(buffers, world.at_once());
    assert!(reads.iter().all(|r| !r.1.is_empty()));
}

#[test]
fn long_weights_come_in_bounded_reads_in_the_order_of_the_file() {
    let mut world = World::new();
    world.source(0, "long", GgmlType::F16, 9000, 1000);
    world.source(0, "wide", GgmlType::F32, 3, 1_500_000);
    world.source(0, "packed", GgmlType::Q8_0, 5000, 2048);
    world.weight(Recipe::source("packed", 5000), GgmlType::Q8_0, 2048, APART);
    world.weight(Recipe::source("wide", 3), GgmlType::F32, 1_500_000, TILES);
    world.weight(Recipe::source("long", 9000), GgmlType::F16, 1000, TILES);
    let mut loader = WeightLoader::new::<PackError>(&world.plan(), &world.sources).unwrap();
    assert!(loader.total_bytes() <= world.files[0].len() as u64);
    let mut end = 0;
    while let Some(read) = loader.next_read().cloned() {
        assert!(read.range.end - read.range.start <= MAX_READ);
        assert!(read.range.start >= end, "{read:?} goes back");
        end = read.range.end;
        let bytes = &world.files[0][read.range.start as usize..end as usize];
        loader
            .supply::<PackError>(bytes, &mut |_, _, _| Ok(()))
            .unwrap();
    }
    // A row of `wide` is longer than a read and than what else is packed at once: it is the caller's limit.
    world.weights.remove(1);
    assert_eq!(world.streamed().0, world.at_once());
}

#[test]
fn small_neighbours_are_read_together() {
    let mut world = World::new();
    for i in 0..50 {
        world.source(0, &format!("n{i}"), GgmlType::F32, 64, 1);
        world.weight(Recipe::source(format!("n{i}"), 64), GgmlType::F32, 1, TILES);
    }
    assert_eq!(world.streamed().1.len(), 1);
}

#[test]
fn what_does_not_fit_is_a_typed_error() {
    let mut world = World::new();
    world.source(0, "a", GgmlType::F32, 4, 8);
    world.weight(Recipe::source("a", 4), GgmlType::F32, 8, TILES);
    let mut loader = WeightLoader::new::<PackError>(&world.plan(), &world.sources).unwrap();
    let error = loader
        .supply::<PackError>(&[0; 5], &mut |_, _, _| Ok(()))
        .unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::Read {
                expected: 128,
                found: 5,
                ..
            }
        ),
        "{error}"
    );

    let fails = |recipe: Recipe, k: usize| {
        let mut world = World {
            sources: world.sources.clone(),
            ..World::new()
        };
        world.weight(recipe, GgmlType::F32, k, TILES);
        WeightLoader::new::<PackError>(&world.plan(), &world.sources)
            .err()
            .unwrap()
            .to_string()
    };
    assert!(fails(Recipe::source("b", 4), 8).contains("its source b is in no file"));
    assert!(
        fails(Recipe::source("a", 5), 8).contains("expected 5 rows of 32 bytes, found 128 bytes")
    );
    assert!(fails(Recipe::source("a", usize::MAX / 64), 8).contains("source a"));
    let error = loader
        .supply::<String>(&[0; 128], &mut |_, _, _| Err("full".into()))
        .unwrap_err();
    assert!(
        matches!(error, LoadError::Write(ref why) if why == "full"),
        "{error}"
    );
}

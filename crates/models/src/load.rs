//! `WeightLoader`: streams weights from files into the kernels' layouts.
//!
//! A state machine without IO, for readers of any kind: it says which bytes of which file it wants ([`WeightLoader::next_read`]),
//! takes them ([`WeightLoader::supply`]), packs whole tiles in bounded scratch, and gives the packed bytes to a writer.
//!
//! A *chunk* is a run of a weight's rows that is packed at once: whole tiles, and mostly from one source. A chunk whose
//! rows come from several places waits until all of them have arrived; it is then one tile, so that little is held.
//! Reads are in the order of the files, each at most [`MAX_READ`]; neighbours are read together.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use ingle_graph::plan::{PackError, Plan, SourceRows, Weight};
use ingle_quant::GgmlType;

use crate::{Place, Source, Sources};

/// The most bytes of one read.
pub const MAX_READ: u64 = 4 << 20;

/// The most bytes that a chunk of more than one tile packs to.
const MAX_PACKED: u64 = 8 << 20;

/// Bytes between two tensors that are read and dropped rather than read around.
const MAX_GAP: u64 = 16 << 10;

/// What can be wrong while weights are loaded; `E` is the writer's error.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E> {
    #[error("weight {weight}: its source {source_name} is in no file")]
    MissingSource { weight: String, source_name: String },
    #[error("source {source_name}: expected {expected}, found {found}")]
    Source {
        source_name: String,
        expected: String,
        found: String,
    },
    #[error("bytes of file {file} at {start}: expected {expected}, found {found}")]
    Read {
        file: usize,
        start: u64,
        expected: u64,
        found: u64,
    },
    #[error(transparent)]
    Pack(PackError),
    #[error(transparent)]
    Write(E),
}

impl<E> From<PackError> for LoadError<E> {
    fn from(error: PackError) -> Self {
        LoadError::Pack(error)
    }
}

/// Bytes that the loader wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub file: usize,
    pub range: Range<u64>,
}

/// Says what to read, and turns what was read into writes to a backend.
pub struct WeightLoader {
    weights: Vec<Weight>,
    chunks: Vec<Chunk>,
    reads: Vec<PlannedRead>,
    /// The read that is waited for.
    at: usize,
    /// Chunks that need no reading, to be written with the first read.
    computed: Vec<usize>,
}

/// Takes a weight's index, an offset in its buffer, and bytes.
pub type WriteWeight<'f, E> = &'f mut dyn FnMut(usize, u64, &[u8]) -> Result<(), E>;

/// Rows of a weight that are packed at once.
struct Chunk {
    weight: usize,
    rows: Range<usize>,
    parts: Vec<Part>,
}

/// Rows of one source that a chunk needs.
struct Part {
    source: String,
    ty: GgmlType,
    rows: Range<usize>,
    row_bytes: usize,
    /// Bytes still to arrive.
    missing: u64,
    /// What has arrived; empty while the part can be packed from the read itself.
    bytes: Vec<u8>,
}

/// A read and what it is for.
struct PlannedRead {
    read: Read,
    pieces: Vec<ReadPiece>,
}

/// A part, or some of one that is longer than a read.
struct ReadPiece {
    chunk: usize,
    part: usize,
    /// Where the piece begins in the file.
    start: u64,
    len: u64,
}

impl WeightLoader {
    /// Plans the reads of all weights of `plan`.
    pub fn new<E>(plan: &Plan, sources: &Sources) -> Result<Self, LoadError<E>> {
        let mut chunks = Vec::new();
        for (index, weight) in plan.weights.iter().enumerate() {
            let mut first = 0;
            while first < weight.rows {
                let chunk = Chunk::plan(index, weight, first, sources)?;
                first = chunk.rows.end;
                chunks.push(chunk);
            }
        }
        let reads = plan_reads(&mut chunks, sources)?;
        let done = |c: &usize| chunks[*c].parts.iter().all(|p| p.missing == 0);
        let computed = (0..chunks.len()).filter(done).collect();
        Ok(WeightLoader {
            weights: plan.weights.clone(),
            chunks,
            reads,
            at: 0,
            computed,
        })
    }

    /// Bytes of all reads together.
    pub fn total_bytes(&self) -> u64 {
        self.reads
            .iter()
            .map(|r| r.read.range.end - r.read.range.start)
            .sum()
    }

    /// The next bytes wanted; `None` when every weight has been written. Asking again gives the same.
    pub fn next_read(&self) -> Option<&Read> {
        self.reads.get(self.at).map(|r| &r.read)
    }

    /// Takes the bytes of [`Self::next_read`] and gives `write` what they complete.
    pub fn supply<E>(
        &mut self,
        bytes: &[u8],
        write: WriteWeight<'_, E>,
    ) -> Result<(), LoadError<E>> {
        for chunk in std::mem::take(&mut self.computed) {
            take(&mut self.chunks[chunk], 0, &[], &self.weights, write)?;
        }
        let Some(planned) = self.reads.get(self.at) else {
            return Ok(());
        };
        let Read { file, range } = &planned.read;
        let (expected, found) = (range.end - range.start, bytes.len() as u64);
        if expected != found {
            return Err(LoadError::Read {
                file: *file,
                start: range.start,
                expected,
                found,
            });
        }
        for piece in &planned.pieces {
            let from = (piece.start - range.start) as usize;
            let bytes = &bytes[from..from + piece.len as usize];
            take(
                &mut self.chunks[piece.chunk],
                piece.part,
                bytes,
                &self.weights,
                write,
            )?;
        }
        self.at += 1;
        Ok(())
    }
}

impl Chunk {
    /// The chunk of `weight` that begins at row `first`, the start of a tile.
    fn plan<E>(
        index: usize,
        weight: &Weight,
        first: usize,
        sources: &Sources,
    ) -> Result<Self, LoadError<E>> {
        let tile = weight.tile();
        let left = weight.rows - first;
        let packed_row = (weight.bytes / weight.rows.max(1) as u64).max(1);
        // No source is read before its type is known, and a row of it is at most 4 bytes an element.
        let by_packed = MAX_PACKED / packed_row;
        let by_read = MAX_READ / source_row_bytes(weight, first, sources)?.max(1) as u64;
        let tiles = (by_packed.min(by_read) as usize / tile).max(1);
        let mut end = first + tiles.saturating_mul(tile).min(left);
        let mut parts = covering(weight, first..end, sources)?;
        if parts.len() > 1 {
            // Up to where the first source ends if that is whole tiles, else one tile.
            let whole = whole_tiles_of_one_source(weight, first..end, tile);
            end = if whole > first {
                whole
            } else {
                first + tile.min(left)
            };
            parts = covering(weight, first..end, sources)?;
        }
        Ok(Chunk {
            weight: index,
            rows: first..end,
            parts,
        })
    }
}

/// Bytes of a row of the source that row `row` of `weight` comes from.
fn source_row_bytes<E>(
    weight: &Weight,
    row: usize,
    sources: &Sources,
) -> Result<usize, LoadError<E>> {
    match weight.recipe.pieces(row..row + 1).first() {
        Some(piece) => Ok(find(weight, piece.source, sources)?.1),
        None => Ok(0),
    }
}

fn find<'a, E>(
    weight: &Weight,
    name: &str,
    sources: &'a Sources,
) -> Result<(&'a Source, usize), LoadError<E>> {
    let source = sources.get(name).ok_or_else(|| LoadError::MissingSource {
        weight: weight.name.clone(),
        source_name: name.to_owned(),
    })?;
    let quant = |error| {
        LoadError::Pack(PackError::Quant {
            weight: weight.name.clone(),
            error,
        })
    };
    Ok((source, source.ty.row_bytes(weight.k).map_err(quant)?))
}

/// For each source of these rows of the weight, the smallest run of its rows that holds all that are needed. A recipe's
/// order within a run (the rotary one) is the packing's business.
fn covering<E>(
    weight: &Weight,
    rows: Range<usize>,
    sources: &Sources,
) -> Result<Vec<Part>, LoadError<E>> {
    let mut runs: BTreeMap<&str, Range<usize>> = BTreeMap::new();
    let pieces = weight.recipe.pieces(rows);
    for piece in &pieces {
        let run = runs.entry(piece.source).or_insert(piece.rows.clone());
        *run = run.start.min(piece.rows.start)..run.end.max(piece.rows.end);
    }
    let part = |(name, rows): (&str, Range<usize>)| {
        let (source, row_bytes) = find(weight, name, sources)?;
        let available = source.byte_count();
        let end = (rows.end as u64).checked_mul(row_bytes as u64);
        if end.is_none_or(|end| end > available) {
            return Err(LoadError::Source {
                source_name: name.to_owned(),
                expected: format!("{} rows of {row_bytes} bytes", rows.end),
                found: format!("{available} bytes"),
            });
        }
        let missing = (rows.len() * row_bytes) as u64;
        Ok(Part {
            source: name.to_owned(),
            ty: source.ty,
            rows,
            row_bytes,
            missing,
            bytes: Vec::new(),
        })
    };
    runs.into_iter().map(part).collect()
}

/// The end of the whole tiles at the start of `rows` that come from the source of the first row.
fn whole_tiles_of_one_source(weight: &Weight, rows: Range<usize>, tile: usize) -> usize {
    let pieces = weight.recipe.pieces(rows.clone());
    let same = pieces.iter().take_while(|p| p.source == pieces[0].source);
    let count: usize = same.map(|p| p.rows.len()).sum();
    rows.start + count / tile * tile
}

/// Puts all parts in the order of the files and cuts and joins them into reads.
fn plan_reads<E>(
    chunks: &mut [Chunk],
    sources: &Sources,
) -> Result<Vec<PlannedRead>, LoadError<E>> {
    let mut wanted: Vec<(usize, ReadPiece)> = Vec::new();
    for (c, chunk) in chunks.iter_mut().enumerate() {
        for (p, part) in chunk.parts.iter_mut().enumerate() {
            let offset = (part.rows.start * part.row_bytes) as u64;
            match sources.get(&part.source).map(|s| &s.place) {
                Some(Place::File { file, range }) => {
                    let piece = ReadPiece {
                        chunk: c,
                        part: p,
                        start: range.start + offset,
                        len: part.missing,
                    };
                    wanted.push((*file, piece));
                }
                Some(Place::Bytes(bytes)) => {
                    part.bytes = bytes[offset as usize..][..part.missing as usize].to_vec();
                    part.missing = 0;
                }
                None => unreachable!("the part was made from this source"),
            }
        }
    }
    wanted.sort_by_key(|(file, piece)| (*file, piece.start, piece.chunk));
    let mut reads: Vec<PlannedRead> = Vec::new();
    for (file, piece) in wanted {
        for piece in cut(piece) {
            push_piece(&mut reads, file, piece);
        }
    }
    Ok(reads)
}

/// Cuts what is longer than a read.
fn cut(piece: ReadPiece) -> impl Iterator<Item = ReadPiece> {
    let count = piece.len.div_ceil(MAX_READ);
    (0..count).map(move |i| {
        let offset = i * MAX_READ;
        let len = MAX_READ.min(piece.len - offset);
        ReadPiece {
            chunk: piece.chunk,
            part: piece.part,
            start: piece.start + offset,
            len,
        }
    })
}

fn push_piece(reads: &mut Vec<PlannedRead>, file: usize, piece: ReadPiece) {
    let end = piece.start + piece.len;
    if let Some(last) = reads.last_mut().filter(|r| r.read.file == file) {
        let range = &mut last.read.range;
        let joined = range.end.max(end);
        if piece.start <= range.end + MAX_GAP && joined - range.start <= MAX_READ {
            range.end = joined;
            last.pieces.push(piece);
            return;
        }
    }
    let read = Read {
        file,
        range: piece.start..end,
    };
    reads.push(PlannedRead {
        read,
        pieces: vec![piece],
    });
}

/// Takes bytes of a part of a chunk, and packs the chunk when it is complete.
fn take<E>(
    chunk: &mut Chunk,
    part: usize,
    bytes: &[u8],
    weights: &[Weight],
    write: WriteWeight<'_, E>,
) -> Result<(), LoadError<E>> {
    let alone = chunk.parts.len() == 1;
    let part = &mut chunk.parts[part];
    let whole =
        alone && part.bytes.is_empty() && part.missing == bytes.len() as u64 && !bytes.is_empty();
    part.missing -= bytes.len() as u64;
    if !whole {
        part.bytes.extend_from_slice(bytes);
    }
    if chunk.parts.iter().any(|p| p.missing > 0) {
        return Ok(());
    }
    let held = |i: usize| {
        if whole {
            bytes
        } else {
            chunk.parts[i].bytes.as_slice()
        }
    };
    let mut rows = |name: &str, rows: Range<usize>| -> Result<SourceRows<'_>, LoadError<E>> {
        let part = chunk.parts.iter().position(|p| p.source == name);
        let (i, p) = match part {
            Some(i) => (i, &chunk.parts[i]),
            None => unreachable!("every source of the chunk has a part"),
        };
        let start = (rows.start - p.rows.start) * p.row_bytes;
        let bytes = &held(i)[start..start + rows.len() * p.row_bytes];
        Ok(SourceRows {
            ty: p.ty,
            bytes: Cow::Borrowed(bytes),
        })
    };
    let mut writer =
        |offset: u64, bytes: &[u8]| write(chunk.weight, offset, bytes).map_err(LoadError::Write);
    weights[chunk.weight].pack(chunk.rows.clone(), &mut rows, &mut writer)?;
    for part in &mut chunk.parts {
        part.bytes = Vec::new();
    }
    Ok(())
}

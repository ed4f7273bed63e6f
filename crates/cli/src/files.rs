//! A model's files on disk.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use ingle_chat::{Files, Opened, ReadError};
use ingle_graph::backend::LocalFuture;

use crate::error::CliError;
use crate::folder;

/// Open files, by number.
pub struct DiskFiles(Vec<DiskFile>);

struct DiskFile {
    path: PathBuf,
    file: File,
    size: u64,
}

/// Opens a GGUF file or a Hugging Face folder and reads its headers.
pub fn open(model: &Path) -> Result<(DiskFiles, Opened), CliError> {
    if model.is_dir() {
        return folder::open(model);
    }
    let mut files = DiskFiles::open(vec![model.to_owned()])?;
    let opened = pollster::block_on(ingle_chat::open_gguf(&mut files))?;
    Ok((files, opened))
}

impl DiskFiles {
    pub fn open(paths: Vec<PathBuf>) -> Result<Self, CliError> {
        let open = |path: PathBuf| {
            let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
            let (size, file) = opened.map_err(|e| CliError::file(&path, e))?;
            Ok(DiskFile { path, file, size })
        };
        paths
            .into_iter()
            .map(open)
            .collect::<Result<_, _>>()
            .map(DiskFiles)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Files for DiskFiles {
    fn size(&self, file: usize) -> u64 {
        self.0.get(file).map_or(0, |f| f.size)
    }

    fn read(
        &mut self,
        file: usize,
        range: Range<u64>,
    ) -> LocalFuture<'_, Result<Vec<u8>, ReadError>> {
        let read = match self.0.get_mut(file) {
            Some(file) => file.read(range),
            None => Err(ReadError {
                message: format!("there is no file number {file}"),
            }),
        };
        Box::pin(std::future::ready(read))
    }
}

impl DiskFile {
    fn read(&mut self, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        let failed = |why: String| ReadError {
            message: format!("{}: {why}", self.path.display()),
        };
        if range.start > range.end || range.end > self.size {
            return Err(failed(format!("bytes {range:?} of {}", self.size)));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self
            .file
            .seek(SeekFrom::Start(range.start))
            .and_then(|_| self.file.read_exact(&mut bytes));
        read.map(|()| bytes).map_err(|e| ReadError {
            message: format!("{}: {e}", self.path.display()),
        })
    }
}

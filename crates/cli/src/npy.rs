//! NumPy's file format, for vectors.

/// A vector of `f32` as a `.npy` file, version 1.0: the header is padded so that the data begins at a multiple of 64.
pub fn vector(values: &[f32]) -> Vec<u8> {
    let text = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}",
        values.len()
    );
    let before = 10 + text.len() + 1;
    let header = before.next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(10 + header - 1, b' ');
    bytes.push(b'\n');
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_aligned_and_the_header_says_its_length() {
        for n in [0, 1, 9, 10, 49152] {
            let bytes = vector(&vec![1.5; n]);
            let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
            assert_eq!((10 + header) % 64, 0);
            assert_eq!(bytes.len(), 10 + header + 4 * n);
            assert_eq!(bytes[10 + header - 1], b'\n');
        }
    }
}

//! The text form of graphs.

use std::fmt;

use ingle_quant::Storage;

use crate::ValueType;

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.state {
            f.write_str("state ")?;
        }
        match self.storage {
            Storage::Element(e) => f.write_str(e.name())?,
            Storage::Quant(q) => write!(f, "{q}")?,
        }
        f.write_str("[")?;
        for (i, d) in self.shape.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

//! What each kernel reads from its binding `params`: one `array<u32>` per launch, written once when a plan is loaded.
//!
//! Each struct is the layout: a field is one word, in the order of the struct. `f32` fields are stored as their bits.
//! `count_word` is the word of the step header that says how many rows there are: [`crate::step::N_TOKENS`] or
//! [`crate::step::N_OUTPUT_ROWS`].

/// Declares a layout: the struct, the words it becomes, and the index of each field for the kernels.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident, $module:ident { $($(#[$field_doc:meta])* $field:ident : $ty:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty),+ }

        impl $name {
            /// The words of the buffer.
            pub fn words(&self) -> Vec<u32> {
                vec![$(layout!(@word $ty, self.$field)),+]
            }
        }

        #[doc = concat!("Word indices of [`", stringify!($name), "`].")]
        pub mod $module {
            layout!(@index 0u32; $($field)+);
        }
    };
    (@word u32, $value:expr) => { $value };
    (@word f32, $value:expr) => { $value.to_bits() };
    (@index $n:expr; $field:ident $($rest:ident)*) => {
        #[allow(non_upper_case_globals, missing_docs)]
        pub const $field: u32 = $n;
        layout!(@index $n + 1u32; $($rest)*);
    };
    (@index $n:expr;) => {};
}

layout! {
    /// [`crate::EmbeddingKey`]
    EmbeddingParams, embedding {
        /// Width of a row.
        k: u32,
        /// Rows of the table.
        vocabulary: u32,
        /// Where the scales begin ([`crate::WeightFormat::scales_word`]).
        scales_word: u32,
        /// Every output is multiplied by this (1 for most models).
        scale: f32,
        /// The id of the table's first row, for a table sharded by rows: other ids are left to other shards.
        first_row: u32,
        /// Ids at or above this are an error: NaN. Only the first shard writes those.
        ids: u32,
    }
}

layout! {
    /// [`crate::RmsNormKey`]
    RmsNormParams, rms_norm {
        /// Width of a row.
        k: u32,
        eps: f32,
        count_word: u32,
    }
}

layout! {
    /// [`crate::MatVecKey`] and [`crate::MatMulKey`]
    ProjectionParams, projection {
        /// Width of a row of `x` and of the matrix; a multiple of 4 and of the format's group.
        k: u32,
        /// Output columns that this launch computes.
        rows: u32,
        /// Rows between the rows of accumulator 0 and of accumulator 1.
        pair_rows: u32,
        /// Where the scales begin ([`crate::WeightFormat::scales_word`] of the whole matrix).
        scales_word: u32,
        /// Elements from one row of `x` to the next; a multiple of 4.
        x_stride: u32,
        /// First element of row 0 of `x`; a multiple of 4.
        x_offset: u32,
        /// Elements from one row of the output to the next.
        out_stride: u32,
        /// Where column 0 lies in an output row; also the first column's index into `Column` inputs.
        out_offset: u32,
        /// Of the fused norm.
        eps: f32,
        count_word: u32,
    }
}

layout! {
    /// [`crate::RopeWriteKey`]
    RopeWriteParams, rope_write {
        heads: u32,
        kv_heads: u32,
        /// Elements from one token's queries to the next's, and where its first query lies.
        q_stride: u32,
        q_offset: u32,
        k_stride: u32,
        k_offset: u32,
        v_stride: u32,
        v_offset: u32,
    }
}

layout! {
    /// [`crate::AttentionKey`]
    AttentionParams, attention {
        heads: u32,
        kv_heads: u32,
        /// Scores are multiplied by this.
        scale: f32,
        /// The soft cap, if the key has one.
        cap: f32,
        /// The window, if the key has one.
        window: u32,
    }
}

layout! {
    /// [`crate::ElementwiseKey`]
    ElementwiseParams, elementwise {
        /// Columns of a row.
        columns: u32,
        count_word: u32,
    }
}

layout! {
    /// [`crate::ArgmaxKey`]
    ArgmaxParams, argmax {
        /// Columns of a row.
        columns: u32,
        count_word: u32,
    }
}

layout! {
    /// [`crate::TakeRowsKey`]
    TakeRowsParams, take_rows {
        /// Width of a row.
        k: u32,
    }
}

layout! {
    /// [`crate::CopyBlocksKey`]
    CopyBlocksParams, copy_blocks {
        /// Words of one block.
        block_words: u32,
    }
}

layout! {
    /// [`crate::QuantizeActivationsKey`]
    QuantizeActivationsParams, quantize_activations {
        /// Width of a row.
        k: u32,
        count_word: u32,
    }
}

layout! {
    /// [`crate::ReduceKey`]
    ReduceParams, reduce {
        /// Width of a row.
        k: u32,
        count_word: u32,
    }
}

layout! {
    /// [`crate::SliceKey`]
    SliceParams, slice {
        /// Width of a row of `x`.
        k: u32,
        /// The first column that is taken.
        start: u32,
        /// How many columns are taken.
        columns: u32,
        count_word: u32,
    }
}

layout! {
    /// [`crate::SoftmaxKey`]
    SoftmaxParams, softmax {
        /// Width of a row.
        k: u32,
        count_word: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_where_the_indices_say() {
        let params = ProjectionParams {
            k: 1,
            rows: 2,
            eps: 0.5,
            count_word: 7,
            ..Default::default()
        };
        let words = params.words();
        assert_eq!(words[projection::k as usize], 1);
        assert_eq!(words[projection::rows as usize], 2);
        assert_eq!(words[projection::eps as usize], 0.5f32.to_bits());
        assert_eq!(words[projection::count_word as usize], 7);
    }
}

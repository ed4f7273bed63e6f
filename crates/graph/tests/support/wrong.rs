//! Rewrites and plans that are wrong on purpose, and well typed all the same: what the random-graph test must see.

use ingle_graph::kernel::{Activations, KernelSpec, MatmulSpec, RopeWriteSpec};
use ingle_graph::ops::{EltOp, Op, Pairing};
use ingle_graph::plan::{Access, Buffer, Plan};
use ingle_graph::{Def, Graph, Node, Operand, Recipe, ValueId};

/// A wrong change to what a pass gave. `change` says whether there was anything to change.
pub struct Wrong {
    pub pass: &'static str,
    pub name: &'static str,
    pub change: fn(&mut Graph) -> bool,
}

const fn wrong(pass: &'static str, name: &'static str, change: fn(&mut Graph) -> bool) -> Wrong {
    Wrong { pass, name, change }
}

pub const REWRITES: &[Wrong] = &[
    wrong("fold", "another constant", |g| {
        op(g, |op| match op {
            Op::Constant(c) => {
                c.value = 1.0 - 3.0 * c.value;
                true
            }
            _ => false,
        })
    }),
    wrong("fold", "a leaf edited by another number", |g| {
        let affine = |r: &mut Recipe| match r {
            Recipe::Affine { shift, .. } => {
                *shift += 0.5;
                true
            }
            _ => false,
        };
        g.leaves.iter_mut().any(|l| affine(&mut l.recipe))
    }),
    wrong("fold", "one node for two that differ", share_unequal),
    wrong("recognise", "another epsilon", |g| {
        op(g, |op| match op {
            Op::RmsNorm(n) => {
                n.eps *= 10.0;
                true
            }
            _ => false,
        })
    }),
    wrong("recognise", "the other pairing", |g| {
        op(g, |op| match op {
            Op::Rope(r) => {
                r.pairing = match r.pairing {
                    Pairing::Halves => Pairing::Interleaved,
                    Pairing::Interleaved => Pairing::Halves,
                };
                true
            }
            _ => false,
        })
    }),
    wrong("recognise", "another scale of attention", |g| {
        op(g, |op| match op {
            Op::Attention(a) => {
                a.scale *= 2.0;
                true
            }
            _ => false,
        })
    }),
    wrong("recognise", "another cap", |g| {
        op(g, |op| match op {
            Op::Softcap(s) => {
                s.cap *= 1.5;
                true
            }
            _ => false,
        })
    }),
    wrong("recognise", "gate for up", |g| {
        node(g, |n| {
            n.inputs.reverse();
            matches!(n.op, Op::Swiglu(_)) && n.inputs[0] != n.inputs[1]
        })
    }),
    wrong("recognise", "sigmoid for silu", |g| {
        op(g, |op| match op {
            Op::Unary(u) if u.kind == EltOp::Silu => {
                u.kind = EltOp::Sigmoid;
                true
            }
            _ => false,
        })
    }),
    wrong("quantize", "a product that is not quantised", |g| {
        bypass(g, |op| matches!(op, Op::QuantizeActivations(_)))
    }),
    wrong("merge", "columns of another projection", swap_slices),
    wrong("merge", "leaves joined in another order", |g| {
        let parts = |r: &mut Recipe| match r {
            Recipe::Concat(parts) => {
                parts.reverse();
                true
            }
            _ => false,
        };
        g.leaves.iter_mut().any(|l| parts(&mut l.recipe))
    }),
    wrong("merge", "a bias that is dropped", |g| {
        let is_bias = |g: &Graph, n: &Node| {
            let joined = |v: &ValueId| {
                g.as_leaf(*v)
                    .is_some_and(|l| matches!(l.recipe, Recipe::Concat(_)))
            };
            matches!(&n.op, Op::Binary(b) if b.kind == EltOp::Add) && n.inputs.iter().any(joined)
        };
        match g.nodes.iter().position(|n| is_bias(g, n)) {
            Some(at) => redirect(g, at),
            None => false,
        }
    }),
    wrong("fuse", "gate for up", |g| in_regions(g, swap_slices)),
    wrong("fuse", "a region without its norm", |g| {
        in_regions(g, |r| bypass(r, |op| matches!(op, Op::RmsNorm(_))))
    }),
    wrong("fuse", "a region without its quantisation", |g| {
        in_regions(g, |r| {
            bypass(r, |op| matches!(op, Op::QuantizeActivations(_)))
        })
    }),
    wrong("fuse", "a difference for a sum", |g| {
        in_regions(g, |r| {
            op(r, |op| match op {
                Op::Binary(b) if b.kind == EltOp::Add => {
                    b.kind = EltOp::Sub;
                    true
                }
                _ => false,
            })
        })
    }),
    wrong("fuse", "inputs of a region exchanged", swap_inputs),
];

/// A wrong change to a plan.
pub type WrongPlan = (&'static str, fn(&mut Plan) -> bool);

pub const PLANS: &[WrongPlan] = &[
    ("accumulators in another order", |p| {
        matmul(p, |m| {
            let mut swapped = false;
            if m.epilogue.accumulators == 2 {
                for step in &mut m.epilogue.steps {
                    for operand in [&mut step.a, &mut step.b] {
                        if let Operand::Acc(i) = operand {
                            *i = 1 - *i;
                            swapped = true;
                        }
                    }
                }
            }
            swapped
        })
    }),
    ("an epilogue without its last step", |p| {
        matmul(p, |m| {
            m.epilogue.result = match m.epilogue.steps.pop() {
                Some(last) => last.a,
                None => return false,
            };
            true
        })
    }),
    ("a product of what is not quantised", |p| {
        matmul(p, |m| {
            let int8 = m.activations == Activations::Int8;
            m.activations = Activations::F32;
            int8
        })
    }),
    ("keys for values", |p| {
        rope_write(p, |r| {
            if r.packed {
                r.starts.swap(1, 2);
            }
            r.packed
        })
    }),
    ("another rotation", |p| {
        rope_write(p, |r| {
            r.rope.base *= 2.0;
            true
        })
    }),
    ("two values in one buffer", |p| {
        let slots = p.scratch.len() as u32;
        let pairs = (0..slots).flat_map(|i| (i + 1..slots).map(move |j| (i, j)));
        for (i, j) in pairs {
            if overlap(p, i, j) {
                for argument in launches(p).flat_map(|l| &mut l.arguments) {
                    if *argument == Buffer::Scratch(j) {
                        *argument = Buffer::Scratch(i);
                    }
                }
                let other = p.scratch[j as usize].bytes;
                let bytes = &mut p.scratch[i as usize].bytes;
                bytes.constant = bytes.constant.max(other.constant);
                bytes.per = bytes.per.max(other.per);
                return true;
            }
        }
        false
    }),
    ("a launch of too few rows", |p| {
        let first = launches(p).find(|l| l.rows.resolve(&Default::default()) == 0);
        match first {
            Some(launch) => {
                launch.rows = ingle_graph::plan::Rows::Const(0);
                true
            }
            None => false,
        }
    }),
];

/// Changes the first op that `change` can.
fn op(g: &mut Graph, mut change: impl FnMut(&mut Op) -> bool) -> bool {
    g.nodes.iter_mut().any(|n| change(&mut n.op))
}

/// Changes a copy of each node until `change` says that it did; that copy takes the node's place.
fn node(g: &mut Graph, change: impl Fn(&mut Node) -> bool) -> bool {
    g.nodes.iter_mut().any(|n| {
        let mut copy = n.clone();
        let changed = change(&mut copy);
        if changed {
            *n = copy;
        }
        changed
    })
}

fn in_regions(g: &mut Graph, change: impl Fn(&mut Graph) -> bool) -> bool {
    op(g, |op| match op {
        Op::Fused(f) => change(&mut f.region),
        _ => false,
    })
}

/// Lets everyone who reads node `at` read its first input instead.
fn redirect(g: &mut Graph, at: usize) -> bool {
    let (from, to) = (g.nodes[at].outputs[0], g.nodes[at].inputs[0]);
    if g.ty(from) != g.ty(to) || g.results.contains(&from) {
        return false;
    }
    let readers = g.nodes.iter_mut().flat_map(|n| &mut n.inputs);
    readers.filter(|v| **v == from).for_each(|v| *v = to);
    true
}

fn bypass(g: &mut Graph, wanted: fn(&Op) -> bool) -> bool {
    match g.nodes.iter().position(|n| wanted(&n.op)) {
        Some(at) => redirect(g, at),
        None => false,
    }
}

/// Lets everyone who reads one node read an earlier one of the same op and type instead.
fn share_unequal(g: &mut Graph) -> bool {
    for j in 0..g.nodes.len() {
        for i in 0..j {
            let (a, b) = (&g.nodes[i], &g.nodes[j]);
            let (from, to) = (b.outputs[0], a.outputs[0]);
            let alike = a.op == b.op && a.inputs != b.inputs && g.ty(from) == g.ty(to);
            if alike && !g.ty(from).state && !g.results.contains(&from) {
                let readers = g.nodes.iter_mut().flat_map(|n| &mut n.inputs);
                readers.filter(|v| **v == from).for_each(|v| *v = to);
                return true;
            }
        }
    }
    false
}

/// Exchanges the columns of two slices of one value.
fn swap_slices(g: &mut Graph) -> bool {
    for j in 0..g.nodes.len() {
        for i in 0..j {
            let (Op::Slice(a), Op::Slice(b)) = (&g.nodes[i].op, &g.nodes[j].op) else {
                continue;
            };
            let same = g.nodes[i].inputs == g.nodes[j].inputs;
            if same && a != b && a.end - a.start == b.end - b.start {
                let (a, b) = (g.nodes[i].op.clone(), g.nodes[j].op.clone());
                (g.nodes[i].op, g.nodes[j].op) = (b, a);
                return true;
            }
        }
    }
    false
}

/// Exchanges two inputs of the same type of a region.
fn swap_inputs(g: &mut Graph) -> bool {
    for at in 0..g.nodes.len() {
        let inputs = g.nodes[at].inputs.clone();
        for j in 0..inputs.len() {
            for i in 0..j {
                let alike = inputs[i] != inputs[j] && g.ty(inputs[i]) == g.ty(inputs[j]);
                let Op::Fused(f) = &g.nodes[at].op else {
                    continue;
                };
                if alike && !only_commutes(&f.region, i, j) {
                    g.nodes[at].inputs.swap(i, j);
                    return true;
                }
            }
        }
    }
    false
}

/// Whether inputs `i` and `j` meet in one op that takes them in either order, and nowhere else.
fn only_commutes(region: &Graph, i: usize, j: usize) -> bool {
    let is = |v: &ValueId, at: usize| region.values[v.index()].def == Def::Input(at as u32);
    let readers = |at: usize| {
        let reads = move |n: &&Node| n.inputs.iter().any(|v| is(v, at));
        region.nodes.iter().filter(reads).count()
    };
    let both = region
        .nodes
        .iter()
        .any(|n| n.inputs.iter().any(|v| is(v, i)) && n.inputs.iter().any(|v| is(v, j)));
    both && readers(i) == 1 && readers(j) == 1
}

fn launches(p: &mut Plan) -> impl Iterator<Item = &mut ingle_graph::plan::Launch> {
    let variants = p.entries.iter_mut().flat_map(|e| &mut e.variants);
    variants.flat_map(|v| &mut v.launches)
}

fn matmul(p: &mut Plan, change: impl Fn(&mut MatmulSpec) -> bool) -> bool {
    p.kernels.iter_mut().any(|k| match &mut k.spec {
        KernelSpec::Matmul(m) => change(m),
        _ => false,
    })
}

fn rope_write(p: &mut Plan, change: impl Fn(&mut RopeWriteSpec) -> bool) -> bool {
    p.kernels.iter_mut().any(|k| match &mut k.spec {
        KernelSpec::RopeWrite(r) => change(r),
        _ => false,
    })
}

/// Whether a launch writes slot `j` between a write of slot `i` and a later read of it.
fn overlap(p: &mut Plan, i: u32, j: u32) -> bool {
    let same = p.scratch[i as usize].bytes.symbol == p.scratch[j as usize].bytes.symbol;
    let accesses: Vec<Vec<Access>> = p
        .kernels
        .iter()
        .map(|k| k.spec.arguments().iter().map(|a| a.0).collect())
        .collect();
    let all: Vec<(usize, Vec<Buffer>)> = launches(p)
        .map(|l| (l.kernel as usize, l.arguments.clone()))
        .collect();
    // A workspace, which no argument list names, is neither.
    let binds = |at: usize, slot: u32, wanted: Access| {
        let (kernel, arguments) = &all[at];
        let mut bound = accesses[*kernel].iter().zip(arguments);
        bound.any(|(access, b)| *access == wanted && *b == Buffer::Scratch(slot))
    };
    let writes = |at, slot| binds(at, slot, Access::Write);
    let reads = |at, slot| binds(at, slot, Access::Read);
    let (mut live, mut over) = (false, false);
    for at in 0..all.len() {
        if reads(at, i) && over {
            return same;
        }
        if writes(at, i) {
            (live, over) = (true, false);
        }
        over |= live && writes(at, j) && !reads(at, i);
    }
    false
}

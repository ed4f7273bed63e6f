//! Fusion: groups nodes into regions that one launch computes.
//!
//! Needs: merged projections. Gives: regions of three kinds, and single nodes.
//!
//! - *matmul*: `rms_norm? → quantize_activations? → matmul → element-wise…`. The norm and the quantisation are copied
//!   into every region that reads them. A matmul that is cut into two halves (gate and up) which element-wise ops join
//!   again has two accumulators.
//! - *rope and write*: `rope` of queries and keys (with the slices they come from) and `state_write`.
//! - *element-wise*: what is left of chains of element-wise ops.

use std::collections::HashMap;

use super::Trace;
use super::inline::is_elementwise;
use super::outline::{Group, outline};
use crate::ops::{Op, Rope};
use crate::program::Extra;
use crate::{Dim, Graph, GraphError, NodeId, ValueId, ValueType};

/// See the module.
pub fn fuse(graph: &Graph, max_extras: usize, trace: &mut Trace) -> Result<Graph, GraphError> {
    let mut fuser = Fuser::new(graph, max_extras);
    let mut groups = Vec::new();
    for pick in [Fuser::matmul, Fuser::rope_write, Fuser::chain] {
        for id in (0..graph.nodes.len() as u32).map(NodeId) {
            if fuser.taken[id.index()] {
                continue;
            }
            if let Some(group) = pick(&fuser, id) {
                group
                    .nodes
                    .iter()
                    .for_each(|n| fuser.taken[n.index()] = true);
                group.rewrites.iter().for_each(|r| trace.count(r));
                groups.push(group);
            }
        }
    }
    outline(graph, &groups)
}

/// How an external value enters an epilogue over `[rows, n]`.
pub(super) fn extra_kind(ty: &ValueType, rows: Dim, n: usize) -> Option<Extra> {
    if ty.element() != Some(ingle_quant::ElementType::F32) || ty.state {
        return None;
    }
    match ty.shape[..] {
        [r, Dim::Const(c)] if r == rows && c == n => Some(Extra::Full),
        [Dim::Const(c)] | [Dim::Const(1), Dim::Const(c)] if c == n && n > 1 => Some(Extra::Column),
        [] | [Dim::Const(1)] | [Dim::Const(1), Dim::Const(1)] => Some(Extra::Scalar),
        [r, Dim::Const(1)] | [r] if r == rows => Some(Extra::Row),
        _ => None,
    }
}

struct Fuser<'a> {
    graph: &'a Graph,
    uses: Vec<usize>,
    users: HashMap<ValueId, Vec<NodeId>>,
    taken: Vec<bool>,
    max_extras: usize,
}

impl<'a> Fuser<'a> {
    fn new(graph: &'a Graph, max_extras: usize) -> Self {
        let mut users: HashMap<ValueId, Vec<NodeId>> = HashMap::new();
        for (i, node) in graph.nodes.iter().enumerate() {
            for &v in &node.inputs {
                let list = users.entry(v).or_default();
                if list.last() != Some(&NodeId(i as u32)) {
                    list.push(NodeId(i as u32));
                }
            }
        }
        Fuser {
            graph,
            uses: graph.uses(),
            users,
            taken: vec![false; graph.nodes.len()],
            max_extras,
        }
    }

    fn node(&self, id: NodeId) -> &'a crate::Node {
        &self.graph.nodes[id.index()]
    }

    fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.graph.values[value.index()].def {
            crate::Def::Node(n, _) => Some(n),
            _ => None,
        }
    }

    fn users(&self, value: ValueId) -> &[NodeId] {
        self.users.get(&value).map_or(&[], Vec::as_slice)
    }

    fn matmul(&self, id: NodeId) -> Option<Group> {
        let node = self.node(id);
        if !matches!(node.op, Op::Matmul(_)) {
            return None;
        }
        let mut group = Group {
            nodes: vec![id],
            ..Group::default()
        };
        let y = node.outputs[0];
        if let Some((halves, slices)) = self.halves(y)
            && let Some((copies, nodes)) = self.absorb(halves.to_vec(), true)
        {
            group.rewrites.push("gate_up");
            group.copies.extend(copies);
            group.nodes.extend(slices.into_iter().chain(nodes));
        } else if let Some((copies, nodes)) = self.absorb(vec![y], false)
            && !nodes.is_empty()
        {
            group.rewrites.push("epilogue");
            group.copies.extend(copies);
            group.nodes.extend(nodes);
        }
        let prologue = self.prologue(node.inputs[0], &group.nodes[1..]);
        if !prologue.is_empty() {
            group.rewrites.push("prologue");
            group.copies.extend(prologue);
        }
        (group.nodes.len() + group.copies.len() > 1).then_some(group)
    }

    /// The quantisation and norm that `x` comes from, as far as the epilogue does not read what they give: a launch has
    /// that for its own row only while it reads `x`.
    fn prologue(&self, mut x: ValueId, epilogue: &[NodeId]) -> Vec<NodeId> {
        let read = |v: ValueId| epilogue.iter().any(|n| self.node(*n).inputs.contains(&v));
        let mut copies = Vec::new();
        for wanted in ["quantize_activations", "rms_norm"] {
            match self
                .producer(x)
                .filter(|id| self.node(*id).op.name() == wanted)
            {
                Some(_) if read(x) => break,
                Some(id) => {
                    copies.push(id);
                    x = self.node(id).inputs[0];
                }
                None => {}
            }
        }
        copies
    }

    /// The two halves that `y` is cut into, if that is all that happens to it.
    fn halves(&self, y: ValueId) -> Option<([ValueId; 2], [NodeId; 2])> {
        let [a, b] = *self.users(y) else { return None };
        let (Op::Slice(first), Op::Slice(second)) = (&self.node(a).op, &self.node(b).op) else {
            return None;
        };
        let n = self.graph.ty(y).last()?;
        let (low, high) = if first.start == 0 { (a, b) } else { (b, a) };
        let (first, second) = if first.start == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let even =
            first.start == 0 && first.end == second.start && second.end == n && 2 * first.end == n;
        (even && self.uses[y.index()] == 2).then(|| {
            (
                [self.node(low).outputs[0], self.node(high).outputs[0]],
                [low, high],
            )
        })
    }

    /// Follows element-wise ops from `live` as far as they lead to a single value. With `join`, the values must become
    /// one, or nothing is absorbed. Gives the constants to copy and the nodes.
    fn absorb(&self, mut live: Vec<ValueId>, join: bool) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
        let ty = self.graph.ty(live[0]);
        let (rows, n) = (ty.shape[0], ty.last()?);
        let (mut copies, mut nodes, mut extras) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(next) = live
            .iter()
            .find_map(|&v| self.absorbable(v, &live, rows, n, &extras))
        {
            let node = self.node(next);
            for &v in node.inputs.iter().filter(|v| !live.contains(v)) {
                match self
                    .producer(v)
                    .filter(|&p| matches!(self.node(p).op, Op::Constant(_)))
                {
                    Some(constant) => copies.push(constant),
                    None if !extras.contains(&v) => extras.push(v),
                    None => {}
                }
            }
            live.retain(|v| !node.inputs.contains(v));
            live.push(node.outputs[0]);
            nodes.push(next);
        }
        (!join || live.len() == 1).then_some((copies, nodes))
    }

    /// The user of `value` that an epilogue can compute next.
    fn absorbable(
        &self,
        value: ValueId,
        live: &[ValueId],
        rows: Dim,
        n: usize,
        extras: &[ValueId],
    ) -> Option<NodeId> {
        let [user] = *self.users(value) else {
            return None;
        };
        let node = self.node(user);
        if self.taken[user.index()] || !is_elementwise(&node.op) {
            return None;
        }
        let out = self.graph.ty(node.outputs[0]);
        if out.shape != [rows, Dim::Const(n)] {
            return None;
        }
        let mut new = 0;
        for &v in &node.inputs {
            if live.contains(&v) {
                let here = node.inputs.iter().filter(|&&w| w == v).count();
                if self.uses[v.index()] != here {
                    return None;
                }
            } else if !self
                .producer(v)
                .is_some_and(|p| matches!(self.node(p).op, Op::Constant(_)))
            {
                extra_kind(self.graph.ty(v), rows, n)?;
                new += usize::from(!extras.contains(&v));
            }
        }
        (extras.len() + new <= self.max_extras).then_some(user)
    }

    fn rope_write(&self, id: NodeId) -> Option<Group> {
        let node = self.node(id);
        let (Op::StateWrite(_), [_, k, v, _]) = (&node.op, &node.inputs[..]) else {
            return None;
        };
        let key = self.single_rope(*k)?;
        let (Op::Rope(rope), pos) = (&self.node(key).op, self.node(key).inputs[1]) else {
            return None;
        };
        let query =
            self.users(node.outputs[0])
                .iter()
                .find_map(|&reader| match self.node(reader).op {
                    Op::Attention(_) => self.single_rope(self.node(reader).inputs[0]),
                    _ => None,
                })?;
        let head_dim = self.graph.ty(node.inputs[0]).shape[4].constant();
        let same = |r: &Rope| r == rope && Some(r.head_dim) == head_dim;
        let matches = matches!(&self.node(query).op, Op::Rope(r) if same(r))
            && self.node(query).inputs[1] == pos
            && self.node(query).inputs.get(2) == self.node(key).inputs.get(2)
            && query < id;
        if !matches {
            return None;
        }
        let mut group = Group {
            copies: vec![],
            nodes: vec![query, key, id],
            rewrites: vec!["rope_write"],
        };
        for source in [self.node(query).inputs[0], self.node(key).inputs[0], *v] {
            if let Some(slice) = self
                .producer(source)
                .filter(|&p| matches!(self.node(p).op, Op::Slice(_)))
                && self.uses[source.index()] == 1
            {
                group.nodes.push(slice);
            }
        }
        Some(group)
    }

    fn single_rope(&self, value: ValueId) -> Option<NodeId> {
        let id = self.producer(value)?;
        let free = !self.taken[id.index()] && self.uses[value.index()] == 1;
        (free && matches!(self.node(id).op, Op::Rope(_))).then_some(id)
    }

    fn chain(&self, id: NodeId) -> Option<Group> {
        let node = self.node(id);
        let out = self.graph.ty(node.outputs[0]);
        let ([rows, Dim::Const(n)], true) = (&out.shape[..], is_elementwise(&node.op)) else {
            return None;
        };
        let (mut copies, mut extras) = (Vec::new(), 0);
        for &v in &node.inputs {
            match self
                .producer(v)
                .filter(|&p| matches!(self.node(p).op, Op::Constant(_)))
            {
                Some(constant) => copies.push(constant),
                None => {
                    extra_kind(self.graph.ty(v), *rows, *n)?;
                    extras += 1;
                }
            }
        }
        let mut nodes = vec![id];
        if extras < self.max_extras
            && let Some((more_copies, more)) = self.absorb(vec![node.outputs[0]], false)
        {
            // The chain's own inputs count towards the extras too: keep what fits.
            let room = self.max_extras - extras;
            let fits = more
                .iter()
                .take_while(|n| self.outside(**n, &more, id) <= room)
                .count();
            nodes.extend(&more[..fits]);
            copies.extend(more_copies);
        }
        (nodes.len() + copies.len() > 1).then(|| Group {
            copies,
            nodes,
            rewrites: vec!["chain"],
        })
    }

    /// Extra inputs of the chain `first, nodes…` up to and including `until`, without those of `first`.
    fn outside(&self, until: NodeId, nodes: &[NodeId], first: NodeId) -> usize {
        let mut inner: Vec<ValueId> = self.node(first).outputs.clone();
        let mut extras: Vec<ValueId> = Vec::new();
        for &n in nodes {
            for &v in &self.node(n).inputs {
                let constant = self
                    .producer(v)
                    .is_some_and(|p| matches!(self.node(p).op, Op::Constant(_)));
                if !inner.contains(&v) && !extras.contains(&v) && !constant {
                    extras.push(v);
                }
            }
            inner.extend(&self.node(n).outputs);
            if n == until {
                break;
            }
        }
        extras.len()
    }
}

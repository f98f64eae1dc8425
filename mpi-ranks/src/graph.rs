//! Graphs, known to all ranks or distributed.
// SPDX-License-Identifier: GPL-2.0-or-later

/// A graph that all ranks know.
#[derive(Clone, Debug)]
pub struct Graph {
    /// For each rank the end of its neighbours in `edges`.
    pub index: Vec<i32>,
    /// The neighbours of all ranks, one after another.
    pub edges: Vec<i32>,
}

impl Graph {
    /// A graph; none if its numbers do not add up.
    #[must_use]
    pub fn new(index: &[i32], edges: &[i32]) -> Option<Graph> {
        let rising = index.windows(2).all(|pair| pair[0] <= pair[1]) && index.first().is_none_or(|first| *first >= 0);
        let known = edges.iter().all(|rank| (0..index.len() as i32).contains(rank));
        (rising && known).then(|| Graph { index: index.to_vec(), edges: edges.to_vec() })
    }

    /// The neighbours of a rank.
    #[must_use]
    pub fn neighbours(&self, rank: usize) -> &[i32] {
        let first = if rank == 0 { 0 } else { self.index[rank - 1] };
        &self.edges[first as usize..self.index[rank] as usize]
    }
}

/// What one rank knows of a distributed graph.
#[derive(Clone, Debug, Default)]
pub struct Distributed {
    /// From whom edges come.
    pub sources: Vec<i32>,
    /// To whom edges go.
    pub destinations: Vec<i32>,
    /// The weights of the first.
    pub source_weights: Vec<i32>,
    /// The weights of the others.
    pub destination_weights: Vec<i32>,
    /// Whether there are weights.
    pub weighted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_that_does_not_add_up_is_refused() {
        let graph = Graph::new;
        let ring = graph(&[1, 3, 4], &[1, 0, 2, 1]).expect("a graph");
        assert_eq!(ring.neighbours(1), [0, 2]);
        assert!(graph(&[2, 1], &[1, 0]).is_none());
        assert!(graph(&[-1, 1], &[1, 0]).is_none());
        assert!(graph(&[1, 2], &[2, 0]).is_none());
    }
}

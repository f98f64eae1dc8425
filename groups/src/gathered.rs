//! Which calls are one MPI program over all groups, and how the ranks of a group are started.

use crate::board::{Seat, Within};
use crate::criu::Dumped;
use steps::groups::split::{Call, Unsplit};
use worlds::kinds::World;
use worlds::ranks;

impl Within {
    /// A call whose ranks in all groups are one MPI world, if they are to be, and what makes it so; what is written for
    /// one world must not run as several.
    ///
    /// # Errors
    /// The call is not to be split.
    pub(super) fn gathered(
        &self,
        mut call: Call,
        world: Option<Result<World, String>>,
        unfit: Option<&str>,
    ) -> Result<(Call, Option<World>), Unsplit> {
        let is_talking = matches!(self, Within::Dumped(within) if within.worlds.is_some());
        if !is_talking || !call.is_mpi() {
            return Ok((call, None));
        }
        let unknown = || "its program is not linked to MPI, and starts another that nobody knows".to_string();
        let world = world.ok_or_else(unknown).and_then(|world| world);
        let world = world.and_then(|world| unfit.map_or(Ok(world), |why| Err(why.to_string())));
        let world = world.map_err(|why| Unsplit::Whole(format!("{why}; no checkpoint is made of it")))?;
        call.gather().map_err(|why| Unsplit::Whole(format!("{why}; no checkpoint is made of it")))?;
        Ok((call, Some(world)))
    }

    /// The words that start the ranks of a group of a call, if they are part of one MPI world; its relay runs then.
    pub(super) fn ranks(&self, group: usize, seat: &Seat) -> Vec<String> {
        let Within::Dumped(Dumped { worlds: Some(worlds), .. }) = self else { return Vec::new() };
        let Some((of, world)) = seat.dumped.as_ref().and_then(|of| Some((of, of.world.as_ref()?))) else {
            return Vec::new();
        };
        let (call, us) = (&seat.call, std::env::current_exe().unwrap_or_default());
        let ranks = call.world();
        let relay = ranks.as_ref().map(|ranks| worlds.serve(of.name(), world, ranks, group));
        let whole = relay.as_deref().zip(ranks.as_deref());
        let words = ranks::words(world, whole, call.tasks_of(group), call.cpus_per_task());
        [us.to_string_lossy().into_owned()].into_iter().chain(words).collect()
    }
}

//! The logs of a group's ranks in memory.

use mlog::channel::Outgoing;
use mlog::frame::{Frame, Header};
use mpi_relay::Error;
use mpi_relay::heart::Log;
use mpi_relay::prints::Print;

#[derive(Debug, Default)]
pub struct PlainLog {
    channels: Vec<Vec<Outgoing<Frame>>>,
}

impl PlainLog {
    pub fn new(ranks: usize, world: usize) -> PlainLog {
        PlainLog { channels: (0..ranks).map(|_| (0..world).map(|_| Outgoing::default()).collect()).collect() }
    }

    /// What another relay finds on the disk.
    pub fn copy(&mut self) -> PlainLog {
        let copy = |channel: &mut Outgoing<Frame>| {
            let mut new = Outgoing::new(channel.base(), channel.collected());
            for (number, frame) in channel.iter_mut() {
                new.offer(number, frame.clone());
            }
            new
        };
        PlainLog { channels: self.channels.iter_mut().map(|row| row.iter_mut().map(copy).collect()).collect() }
    }
}

impl Log for PlainLog {
    fn logged(&self, place: usize) -> Vec<u64> {
        self.channels[place].iter().map(Outgoing::logged).collect()
    }

    fn gone(&self, place: usize, to: usize) -> u64 {
        self.channels[place][to].base()
    }

    fn append(&mut self, place: usize, messages: Vec<Frame>) -> Result<(), Error> {
        for frame in messages {
            self.channels[place][usize::from(frame.header.group)].offer(frame.header.number, frame);
        }
        Ok(())
    }

    fn cut(&mut self, place: usize, to: usize, goes: impl Fn(&Header) -> bool) -> Result<(), Error> {
        self.channels[place][to].cut(|frame| goes(&frame.header));
        Ok(())
    }

    fn join(&mut self, place: usize, to: usize, held: u64) -> Result<(), Error> {
        self.channels[place][to].join(held);
        Ok(())
    }

    fn want(&mut self, place: usize, to: usize, from: u64) {
        let channel = &mut self.channels[place][to];
        if from == 0 { channel.pause() } else { channel.want(from) }
    }

    fn due(&self, place: usize, to: usize) -> Option<u64> {
        self.channels[place][to].due()
    }

    fn take_due(&mut self, place: usize, to: usize) -> Result<Option<Frame>, Error> {
        let channel = &mut self.channels[place][to];
        let Some(number) = channel.due() else { return Ok(None) };
        let frame = channel.get_mut(number).cloned();
        channel.transmitted();
        Ok(frame)
    }

    fn lost(&self, place: usize, to: usize) -> Option<u64> {
        self.channels[place][to].lost()
    }

    fn collect(&mut self, place: usize, to: usize, upto: u64) -> Result<(), Error> {
        self.channels[place][to].collect(upto).for_each(drop);
        Ok(())
    }

    fn prints(&mut self, place: usize, to: usize) -> Result<Vec<(u64, Print)>, Error> {
        let channel = self.channels[place][to].iter_mut();
        Ok(channel.filter_map(|(number, f)| Some((number, Print::of_body(&f.body, f.header.rest)?))).collect())
    }

    fn forgets(&self) -> bool {
        false
    }
}

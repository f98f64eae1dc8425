//! The storage of a life: the real folder of a run, and an engine that copies a program's files into it and back.

use super::life::{Port, World, announces};
use super::program::Program;
use driver::ports::{Engine, Happening, NotSaved, Saved, Store, Unprepared};
use protocol::{Event, Manifest};
use rand::Rng;
use run::{Patience, bring_back, take_new};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How often a program reads its files when it begins.
const READS: u32 = 5;

/// Errors are tried again for so long where a run goes on from.
const LONGER: Patience = Patience { limit: Duration::from_millis(10), pause: Duration::from_micros(500) };

impl World {
    /// The program's files are copied, or not.
    pub fn copied(&mut self) -> Happening {
        let Some((_, Some(into))) = self.asked.take() else {
            return Happening::Checkpointed(Err(NotSaved::Failed("the program could not write its state".to_string())));
        };
        let taken = take_new(&self.program.paths(), &into, &self.checkpoints.earlier());
        Happening::Checkpointed(match taken {
            Ok(files) => Ok(Saved { files, still_s: None, kept: None }),
            Err(e) => Err(e.to_string().into()),
        })
    }

    /// Reads a checkpoint back that is complete.
    pub fn read_back(&mut self) {
        let number = self.to_read_back.remove(0);
        if let Ok(verdict) = self.checkpoints.settle(number) {
            self.oracle.lock().reads_back(number, &verdict);
        }
    }
}

impl Engine for Port {
    fn name(&self) -> &str {
        "app"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, _: f64) -> Result<Vec<(String, String)>, Unprepared> {
        let mut w = self.0.borrow_mut();
        w.call();
        let Some(line) = from else {
            w.from_s = 0.0;
            return Ok(Vec::new());
        };
        let folder = w.checkpoints.path(line.number);
        bring_back(&w.program.here(line), &folder, LONGER)?;
        let mut found = w.program.load();
        for _ in 0..READS {
            if found.is_ok() {
                break;
            }
            thread::sleep(Duration::from_micros(200));
            found = w.program.load();
        }
        let found = found.map_err(|e| Unprepared::Storage(e.to_string()))?;
        w.oracle.lock().brings_back(line, &found);
        w.from_s = Program::progress_s(&found);
        Ok(Vec::new())
    }

    fn begin(&mut self, into: PathBuf) {
        let mut w = self.0.borrow_mut();
        w.call();
        let number = into.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0);
        let announced = announces(&mut w, number);
        let at_s = w.now_s + w.rng.random_range(0.1..20.0);
        w.asked = Some((at_s, announced.map(|_| into)));
    }

    fn give_up(&mut self) {
        self.0.borrow_mut().asked = None;
    }
}

impl Store for Port {
    fn append(&mut self, at_s: f64, events: Vec<Event>) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        let records = w.journal.append(events.into_iter().map(|event| (at_s, event)).collect())?;
        w.oracle.lock().acknowledges(w.number, &records);
        Ok(())
    }

    fn room(&mut self) -> run::Result<(u64, PathBuf)> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.checkpoints.room()
    }

    fn commit(&mut self, manifest: &Manifest) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.checkpoints.commit(manifest)?;
        let holder = w.number;
        w.oracle.lock().completes(holder, manifest.number);
        w.to_read_back.push(manifest.number);
        Ok(())
    }

    fn newest(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        let mut w = self.0.borrow_mut();
        w.call();
        let (line, notes) = w.checkpoints.patient(LONGER).newest()?;
        let holder = w.number;
        w.oracle.lock().goes_on_from(holder, line.as_ref(), &notes);
        // A program that begins anew finds nothing of an earlier life.
        if line.is_none() {
            w.program.paths().iter().for_each(|path| drop(fs::remove_file(path)));
        }
        Ok((line, notes))
    }

    fn show(&mut self) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.holder.show()
    }

    fn flush(&mut self, _: f64) {
        let mut w = self.0.borrow_mut();
        w.call();
        if let Ok(records) = w.journal.append(Vec::new()) {
            w.oracle.lock().acknowledges(w.number, &records);
        }
    }
}

//! Combines programs that run at the same time. They share cores, page cache, memory, file systems and device, but no names.

use emmclab_base::Result;

use super::{AppProgram, FileAccess, FileSelection, ProgramStep};

impl AppProgram {
    /// This program combined with others, which begin at the same time. Names of the others are prefixed with the name of their program,
    /// such as `email: mail.db`. The user waits only for this program: when it ends, all end.
    ///
    /// # Errors
    /// As [`AppProgram::from_toml`], if all of them together exceed the limits of a program, or if two names are equal.
    pub fn combined_with(mut self, others: &[Self]) -> Result<Self> {
        let mut names = vec![self.name.clone()];
        for other in others {
            let Self { name, files, databases, procedures, threads, .. } = other.clone();
            // A second program with the same name gets a number.
            let count = names.iter().filter(|known| **known == name).count();
            let prefix = if count == 0 { name.clone() } else { format!("{name} {}", count + 1) };
            names.push(name);
            let own = |name: &mut String| *name = format!("{prefix}: {name}");
            self.files.extend(files.into_iter().map(|mut set| {
                own(&mut set.name);
                set
            }));
            self.databases.extend(databases.into_iter().map(|mut database| {
                own(&mut database.name);
                database
            }));
            self.procedures.extend(procedures.into_iter().map(|mut procedure| {
                own(&mut procedure.name);
                for step in &mut procedure.steps {
                    step.rename(&own);
                }
                procedure
            }));
            self.threads.extend(threads.into_iter().map(|mut thread| {
                own(&mut thread.name);
                for step in &mut thread.steps {
                    step.rename(&own);
                }
                thread
            }));
        }
        self.name = names.join(" + ");
        self.check("")?;
        Ok(self)
    }
}

impl ProgramStep {
    /// Applies `own` to every name of a file, database, procedure, thread, signal and lock.
    fn rename(&mut self, own: &impl Fn(&mut String)) {
        match self {
            Self::Cpu { .. } | Self::Think { .. } | Self::Network { .. } | Self::Sync {} => {}
            Self::Create { file }
            | Self::Truncate { file, .. }
            | Self::Read(FileAccess { file, .. })
            | Self::Write(FileAccess { file, .. })
            | Self::Overwrite(FileAccess { file, .. })
            | Self::Append(FileAccess { file, .. })
            | Self::Fsync(FileSelection { file, .. })
            | Self::Fdatasync(FileSelection { file, .. })
            | Self::Delete(FileSelection { file, .. }) => own(file),
            Self::Rename { file, to } => {
                own(file);
                own(to);
            }
            Self::Transaction { database, .. } | Self::Query { database, .. } => own(database),
            Self::Signal { name } | Self::Wait { name } => own(name),
            Self::Lock { name, steps } => {
                own(name);
                for step in steps {
                    step.rename(own);
                }
            }
            Self::Start { thread } | Self::Join { thread } => own(thread),
            Self::Repeat { steps, .. } | Self::Maybe { steps, .. } => {
                for step in steps {
                    step.rename(own);
                }
            }
            Self::Call { procedure } => own(procedure),
        }
    }
}

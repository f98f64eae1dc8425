//! Tests of how calls are read and dealt out.

use super::*;

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_string).collect()
}

fn read_for(text: &str, sizes: &[usize]) -> Result<Call, Unsplit> {
    Call::read(&words(text), sizes, |_| None)
}

fn read(text: &str) -> Result<Call, Unsplit> {
    read_for(text, &[9])
}

fn places(sizes: &[usize]) -> Vec<Vec<String>> {
    let mut name = (1..).map(|i| format!("n{i}"));
    sizes.iter().map(|size| name.by_ref().take(*size).collect()).collect()
}

#[test]
fn the_program_is_found_behind_options_of_every_form() {
    for line in [
        "prog -n 7",
        "-N3 -n 6 prog -n 7",
        "--nodes=3 --ntasks 6 -l --exact --mpi=pmix prog -n 7",
        "-c 2 --mem 100 -K1 -- prog -n 7",
        "--ft-energy --cpu-bind none -o out.%t prog -n 7",
    ] {
        assert_eq!(read(line).unwrap().command, words("prog -n 7"), "{line}");
    }
}

#[test]
fn an_mpi_program_falls_with_any_of_its_tasks_unless_the_call_says_otherwise() {
    for (line, variable, expected) in [
        ("p", "", false),
        ("--mpi=pmix p", "", true),
        ("--mpi pmi2 p", "", true),
        ("--mpi=none p", "", false),
        ("p", "SLURM_MPI_TYPE", true),
        ("--mpi=none p", "SLURM_MPI_TYPE", false),
        ("--mpi=pmix p", "SLURM_KILL_BAD_EXIT", false),
        ("--mpi=pmix --kill-on-bad-exit=0 p", "", false),
        ("-K0 --mpi=pmix p", "", false),
    ] {
        let call = Call::read(&words(line), &[2], |name| (name == variable).then(|| "pmix".to_string())).unwrap();
        let share = call.share(0, 0, &places(&[2]), &[], false);
        assert_eq!(share.args.iter().any(|a| a == "--kill-on-bad-exit"), expected, "{line} {variable}");
    }
}

#[test]
fn a_call_that_only_makes_sense_as_a_whole_is_told_from_others() {
    for (line, why) in [
        ("--multi-prog a.conf", "--multi-prog"),
        ("-w n3 prog", "--nodelist"),
        ("--relative=1 prog", "--relative"),
        ("-n x prog", "is no number"),
        ("-N2-x prog", "is no number"),
        ("-ln3 prog", "write them apart"),
    ] {
        let read = read(line).unwrap_err();
        assert!(matches!(&read, Unsplit::Whole(text) if text.contains(why)), "{line}: {read:?}");
    }
    for line in ["-n3", "--version", "-h"] {
        assert_eq!(read(line), Err(Unsplit::Answer), "{line}");
    }
}

#[test]
fn what_srun_would_refuse_of_the_groups_nodes_is_refused_in_its_words() {
    for (line, variable, refused) in [
        ("-N9 p", "", "Only allocated 3 nodes asked for 9"),
        ("-N4-9 -n9 p", "", "Only allocated 3 nodes asked for 4"),
        ("-N9 p", "SLURM_NTASKS=3", ""),
        ("-N9 -n2 p", "", ""),
        ("-N2-9 p", "", ""),
        ("-n7 p", "SLURM_JOB_CPUS_PER_NODE=2(x3)", "job 5: More processors requested than permitted"),
        ("-n2 -c 4 p", "SLURM_JOB_CPUS_PER_NODE=2(x3)", "job 5: More processors"),
        ("-n7 p", "SLURM_JOB_CPUS_PER_NODE=2(x2),4(x2)", ""),
        ("-n13 p", "SLURM_JOB_CPUS_PER_NODE=2(x2),4(x2)", "job 5: More processors"),
        ("-n7 -O p", "SLURM_JOB_CPUS_PER_NODE=2(x3)", ""),
        ("-n7 p", "", ""),
    ] {
        let set = |name: &str| {
            let given = [variable, "SLURM_JOB_ID=5"].into_iter().filter_map(|v| v.split_once('='));
            given.into_iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
        };
        match Call::read(&words(line), &[1, 2], set) {
            Ok(_) => assert_eq!(refused, "", "{line} {variable}"),
            Err(Unsplit::Refused(why)) => assert!(!refused.is_empty() && why.contains(refused), "{line}: {why}"),
            Err(other) => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn tasks_are_dealt_out_node_by_node() {
    for (line, sizes, expected) in [
        ("p", vec![1, 1, 1], "[[1], [1], [1]]"),
        ("-n6 p", vec![1, 1, 1], "[[2], [2], [2]]"),
        ("-n7 p", vec![1, 1, 1], "[[3], [2], [2]]"),
        ("-n4 p", vec![2, 2], "[[1, 1], [1, 1]]"),
        ("-n6 p", vec![2, 2], "[[2, 1], [2, 1]]"),
        ("-n2 p", vec![2, 2], "[[1], [1]]"),
        ("-n9 p", vec![2, 1], "[[3, 3], [3]]"),
        ("-N3 -n6 p", vec![2, 2], "[[2, 2], [2]]"),
        ("--ntasks-per-node=2 p", vec![2, 1], "[[2, 2], [2]]"),
        ("-N2 -n2 p", vec![1, 1, 1], "[[1], [1], []]"),
        ("-n1 p", vec![2, 2], "[[1], []]"),
        ("-N2-9 p", vec![1, 1, 1], "[[1], [1], [1]]"),
        ("-N1-2 -n4 p", vec![1, 1, 1], "[[2], [2], []]"),
    ] {
        assert_eq!(format!("{:?}", read_for(line, &sizes).unwrap().tasks()), expected, "{line}");
    }
    let call = read_for("-n1 p", &[2, 2]).unwrap();
    assert_eq!(call.groups(), [0]);
    assert_eq!(call.share(0, 0, &places(&[2, 2]), &[], false).nodes, ["n1"], "the other node of the group may die");
}

#[test]
fn a_call_that_needs_few_groups_goes_to_those_that_are_preferred() {
    let dealt = |line: &str, keys: [usize; 3]| {
        let mut call = read_for(line, &[1, 2, 1]).unwrap();
        call.prefer(|group| keys[*group]);
        format!("{:?}", call.tasks())
    };
    assert_eq!(dealt("-n1 p", [1, 0, 0]), "[[], [1], []]");
    assert_eq!(dealt("-n1 p", [1, 1, 0]), "[[], [], [1]]");
    assert_eq!(dealt("-N2 -n3 p", [1, 1, 0]), "[[1], [], [2]]");
    assert_eq!(dealt("-n1 p", [0, 0, 0]), "[[1], [], []]");
    assert_eq!(dealt("-n7 p", [2, 1, 0]), dealt("-n7 p", [0, 0, 0]), "all are needed");
    let mut call = read_for("-n1 p", &[1, 1]).unwrap();
    call.prefer(|group| 1 - group);
    let line = call.share(0, 1, &places(&[1, 1]), &[], false).args.join(" ");
    assert!(line.contains("SLURM_PROCID+0") && line.contains("--nodelist=n2"), "{line}");
}

#[test]
fn the_number_of_tasks_comes_from_the_environment_if_the_call_does_not_say_it() {
    let variable = |name: &str| (name == "SLURM_NTASKS").then(|| "4".to_string());
    for (line, expected) in [("p", vec![[2], [2]]), ("-n 2 p", vec![[1], [1]]), ("-N2 p", vec![[2], [2]])] {
        assert_eq!(Call::read(&words(line), &[1, 1], variable).unwrap().tasks(), expected, "{line}");
    }
    let tasks = Call::read(&words("-N1 p"), &[1, 1], variable).unwrap().tasks();
    assert_eq!(format!("{tasks:?}"), "[[4], []]");
}

#[test]
fn the_tasks_of_all_groups_see_one_whole() {
    let sizes = [1, 2];
    let job = |name: &str| (name == "SLURM_JOB_NAME").then(|| "bob's run".to_string());
    let call = Call::read(&words("-l -n4 -o out p x"), &sizes, job).unwrap();
    let places = places(&sizes);
    let mut seen = Vec::new();
    for group in 0..2 {
        let share = call.share(3, group, &places, &[], false);
        assert_eq!(share.step, format!("p.3.g{group}"));
        let at = share.args.iter().position(|a| a == "-c").unwrap();
        let tasks: usize = share.args.iter().find_map(|a| a.strip_prefix("--ntasks=")).unwrap().parse().unwrap();
        for rank in 0..tasks {
            let output = std::process::Command::new("sh")
                .args(["-c", &share.args[at + 1], "sh", "sh", "-c"])
                .arg("echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_GTIDS on $SLURM_JOB_NODELIST in $SLURM_JOB_NAME")
                .env("SLURM_PROCID", rank.to_string())
                .env("SLURM_GTIDS", (0..tasks).map(|t| t.to_string()).collect::<Vec<_>>().join(","))
                .env("SLURM_NODEID", "0")
                .output()
                .unwrap();
            seen.push(String::from_utf8(output.stdout).unwrap());
        }
    }
    let beside = ["0,1", "0,1", "2,3", "2,3"];
    let expected: Vec<String> = (0..4).map(|r| format!("{r}/4 {} on n1,n2,n3 in bob's run\n", beside[r])).collect();
    assert_eq!(seen, expected);
    let share = call.share(0, 1, &places, &[], false).args.join(" ");
    let begins =
        "-l --input=none --output=out --open-mode=append --job-name=p.0.g1 --nodes=2 --ntasks=2 --nodelist=n2,n3";
    assert!(share.starts_with(begins), "{share}");
    assert!(share.ends_with(" p x"), "{share}");
}

#[test]
fn a_gathered_share_is_one_task_with_the_cpus_of_its_ranks() {
    let gathered = |line: &str, sizes: &[usize]| {
        let cpus = |name: &str| (name == CPUS).then(|| "4(x3)".to_string());
        let mut call = Call::read(&words(line), sizes, cpus).unwrap();
        call.gather().map(|()| call)
    };
    for (line, sizes, world) in [
        ("--mpi=pmix -n5 p", &[1, 1, 1][..], Some("0-1/2-3/4")),
        ("--mpi pmix -n3 p", &[1, 1, 1], Some("0/1/2")),
        ("-n1 p", &[1, 1], None),
        ("--ntasks-per-node=2 -N2 p", &[1, 1], Some("0-1/2-3")),
    ] {
        assert_eq!(gathered(line, sizes).unwrap().world().as_deref(), world, "{line}");
    }
    assert!(gathered("-n2 p", &[1, 1, 1]).unwrap_err().contains("some of them"));
    assert!(gathered("-n3 p", &[1, 2]).unwrap_err().contains("node by node"));
    let call = gathered("--mpi=pmix -n4 -c 2 -K1 --cpu-bind=cores -m block -t 9 --mem-per-cpu=9 p x", &[1, 1]).unwrap();
    let line = call.share(0, 1, &places(&[1, 1]), &["ranks".to_string()], false).args.join(" ");
    let begins = "-t 9 --mem-per-cpu=9 --input=none --job-name=p.0.g1 --nodes=1 --ntasks=1 --nodelist=n2 --cpus-per-task=4 --mpi=none sh";
    assert!(line.starts_with(begins), "{line}");
    assert!(
        line.contains("SLURM_PROCID+2") && line.contains("SLURM_NTASKS=4") && line.ends_with(" ranks p x"),
        "{line}"
    );
    let crowded = gathered("-O -n12 p", &[1, 1]).unwrap();
    let line = crowded.share(0, 0, &places(&[1, 1]), &[], false).args.join(" ");
    assert!(line.contains("--cpus-per-task=4 "), "no more than a node has: {line}");
}

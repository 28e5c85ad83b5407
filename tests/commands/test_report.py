import base64
import json
import shutil

import pytest

from mimex.cli import main
from mimex.train.checkpoint import save


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "reach"
    folder.mkdir()
    (folder / "config.json").write_text('{"task": "FrankaReach", "bonus": "rnd", "steps": 2}')
    rows = [{"step": step, "eval/success": step / 2} for step in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "videos").mkdir()
    (folder / "videos" / "play.mp4").write_bytes(bytes(300_000))
    return folder


def test_a_report_is_written(run_folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(run_folder), "-o", str(out), "--title", "My runs"]) == 0
    assert "<h1>My runs</h1>" in out.read_text()
    assert capsys.readouterr().out == f"{out}: 1 runs, {out.stat().st_size / 1e6:.1f} MB\n"


def test_what_there_was_no_room_for_is_named(run_folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    main(["report", str(run_folder), "-o", str(out), "--video-mb", "0.1"])
    assert "reach/videos/play.mp4 (0.3 MB)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{tmp}/nothing"], "nothing does not exist"),
        (["{tmp}/reach", "-o", "{tmp}"], "is a folder"),
        (["{tmp}/reach", "--video-mb", "nan"], "--video-mb is nan"),
        (["{tmp}/reach", "--video-mb", "-1"], "--video-mb is -1"),
    ],
)
def test_mistakes_are_reported_in_one_line(arguments, words, run_folder, tmp_path, capsys):
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    assert main(["report", *arguments]) != 0
    assert words in capsys.readouterr().err


SECRET = "my password"


@pytest.mark.parametrize("name", ["config.json", "about.json", "metrics.jsonl"])
def test_files_that_lead_elsewhere_are_not_put_into_a_page(run_folder, tmp_path, name, capsys):
    text = (run_folder / name).read_text() if (run_folder / name).exists() else "{}"
    (tmp_path / "secret").write_text(text)
    (run_folder / name).unlink(missing_ok=True)
    (run_folder / name).symlink_to(tmp_path / "secret")
    assert main(["report", str(run_folder), "-o", str(tmp_path / "page.html")]) == 1
    assert f"{name} is a symbolic link" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("whole_folder", [True, False])
def test_videos_that_lead_elsewhere_or_are_unfinished_are_left_out(
    run_folder, tmp_path, whole_folder
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "b.mp4").write_text(SECRET)
    if whole_folder:
        shutil.rmtree(run_folder / "videos")
        (run_folder / "videos").symlink_to(elsewhere)
    else:
        (run_folder / "videos" / "b.mp4").symlink_to(elsewhere / "b.mp4")
        (run_folder / "videos" / ".writing-a.mp4").write_text(SECRET)
    page = tmp_path / "page.html"
    assert main(["report", str(run_folder), "-o", str(page)]) == 0
    assert base64.b64encode(SECRET.encode()).decode() not in page.read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [("step", "null"), ("step", '"x"'), ("eval/success", "NaN"), ("eval/return", "Infinity")],
)
def test_a_row_without_a_step_or_with_values_that_are_not_finite(run_folder, tmp_path, name, value):
    with (run_folder / "metrics.jsonl").open("a") as file:
        for step in (3, 4):
            row = {"step": str(step), "eval/success": "1", "eval/return": "3"} | {name: value}
            file.write("{" + ", ".join(f'"{key}": {text}' for key, text in row.items()) + "}\n")
        file.write("rubbish\n")
    other = shutil.copytree(run_folder, tmp_path / "other")
    (other / "config.json").write_text('{"task": "FrankaReach", "bonus": "rnd", "seed": 1}')
    page = tmp_path / "page.html"
    assert main(["report", str(run_folder), str(other), "-o", str(page)]) == 0


@pytest.mark.parametrize("name", ["config.json", "about.json"])
@pytest.mark.parametrize("content", ["[]", '"Unterm'])
def test_files_that_are_no_json_objects_are_named(run_folder, tmp_path, name, content, capsys):
    (run_folder / name).write_text(content)
    assert main(["report", str(run_folder), "-o", str(tmp_path / "page.html")]) == 1
    assert str(run_folder / name) in capsys.readouterr().err


def test_a_record_that_leads_elsewhere_is_not_read(run_folder, tmp_path, capsys):
    save(tmp_path / "secret", {"step": 3, "planes": [], "films": []})
    (run_folder / "novelty").mkdir()
    (run_folder / "novelty" / "step_000000000003.safetensors").symlink_to(tmp_path / "secret")
    assert main(["report", str(run_folder), "-o", str(tmp_path / "page.html")]) == 1
    assert "is a symbolic link" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[]", "{}", '"Unterm', '{"runs": 3}'])
def test_a_damaged_study_is_named_and_kept(run_folder, tmp_path, content, capsys):
    (tmp_path / "study" / "runs").mkdir(parents=True)
    run_folder.rename(tmp_path / "study" / "runs" / "reach")
    (tmp_path / "study" / "study.json").write_text(content)
    out = str(tmp_path / "study")
    study = ["study", "run", "difficulty", "--tasks", "KukaPick", "--seeds", "1", "--jobs", "1"]
    for words in (["report", out], [*study, "--out", out]):
        assert main(words) == 1
        assert str(tmp_path / "study" / "study.json") in capsys.readouterr().err
    assert (tmp_path / "study" / "study.json").read_text() == content


def test_metrics_without_anything_to_compare_are_named(run_folder, tmp_path, capsys):
    (run_folder / "metrics.jsonl").write_text('{"step": 3, "ppo/std": 0.5}\n')
    assert main(["report", str(run_folder), "-o", str(tmp_path / "page.html")]) == 1
    assert str(run_folder / "metrics.jsonl") in capsys.readouterr().err

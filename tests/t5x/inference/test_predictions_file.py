"""The predictions of an evaluation are gathered in one file, which another evaluation replaces."""

import json

from t5x.inference import predictions_file


def logged(folder, task, step, predictions):
    (folder / "inference_eval").mkdir(exist_ok=True)
    lines = (json.dumps({"input": {}, "prediction": each}) + "\n" for each in predictions)
    (folder / "inference_eval" / f"{task}-{step:06}.jsonl").write_text("".join(lines))


def read(folder):
    lines = (folder / predictions_file.NAME).read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [(one["task"], one["step"], one["prediction"]) for one in found]


def test_the_tasks_of_an_evaluation_stand_in_one_file(tmp_path):
    logged(tmp_path, "a", 10, ["unu", "ș\n"])
    logged(tmp_path, "b", 10, ["doi"])
    logged(tmp_path, "b", 2000000, ["trei"])
    predictions_file.publish(str(tmp_path), ["a", "b"], 10)
    assert read(tmp_path) == [("a", 10, "unu"), ("a", 10, "ș\n"), ("b", 10, "doi")]
    predictions_file.publish(str(tmp_path), ["a", "b"], 2000000)
    assert read(tmp_path) == [("b", 2000000, "trei")]
    predictions_file.publish(str(tmp_path), ["a", "b"], 7)  # whose loggers wrote no predictions
    assert read(tmp_path) == [("b", 2000000, "trei")]

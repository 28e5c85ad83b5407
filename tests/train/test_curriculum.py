import gymnasium
import numpy as np
import pytest
from tests.processes import together

import mimex.envs  # noqa: F401 (registers the tasks)
from mimex.contracts import Step
from mimex.envs.reward import weights
from mimex.nn import processes
from mimex.train.curriculum import Curriculum

STAGES = ("dense", "sparse", "sparser")


@pytest.fixture
def env():
    made = gymnasium.make_vec("mimex/FrankaPick-v0", num_envs=2, threads=1)
    yield made
    made.close()


def end(curriculum, *successes):
    """Both environments end an episode."""
    ended, no = np.ones(2, bool), np.zeros(2, bool)
    info = {"final_info": {"success": np.array(successes)}}
    curriculum.step(Step(None, None, None, np.zeros(2), ended, no, info))


def test_it_begins_with_the_first_reward_and_moves_on_when_it_is_mastered(env):
    curriculum = Curriculum(env, STAGES, success_rate=0.75, episodes=4)
    assert env.unwrapped.weights == weights("FrankaPick", "dense")
    end(curriculum, True, True)  # two of two, but four are looked at
    assert curriculum.stage == 0
    end(curriculum, False, False)
    end(curriculum, True, True)  # two of the last four
    assert curriculum.stage == 0
    end(curriculum, True, False)  # three of the last four
    assert curriculum.stage == 1
    assert env.unwrapped.weights == weights("FrankaPick", "sparse")
    assert curriculum.metrics(None) == {"train/stage": 1.0}


def test_episodes_of_the_reward_before_do_not_count_and_the_last_stage_stays(env):
    curriculum = Curriculum(env, STAGES, success_rate=1.0, episodes=2)
    stages = []
    for _ in range(4):
        end(curriculum, True, True)
        stages.append(curriculum.stage)
    assert stages == [1, 2, 2, 2]


def stages_in_a_process():
    """Each process has two environments; those of the second one alone do not suffice."""
    env = gymnasium.make_vec("mimex/FrankaPick-v0", num_envs=2, threads=1)
    curriculum = Curriculum(env, STAGES, success_rate=0.75, episodes=4)
    stages = []
    for succeeds in (False, True, True):
        before = curriculum.stage
        end(curriculum, True, processes.rank() == 0 or succeeds)
        assert curriculum.stage == before  # all move on at the end of a row
        stages.append(curriculum.metrics(None)["train/stage"])
    assert env.unwrapped.weights == weights("FrankaPick", STAGES[curriculum.stage])
    return stages


def test_several_processes_move_on_together_by_the_episodes_of_all():
    assert together(stages_in_a_process, 2) == [[1.0, 2.0, 2.0]] * 2


def test_a_saved_one_continues_exactly(env):
    one = Curriculum(env, STAGES, success_rate=1.0, episodes=4)
    for _ in range(3):
        end(one, True, True)
    state = one.state_dict()
    other = Curriculum(env, STAGES, success_rate=1.0, episodes=4)
    assert env.unwrapped.weights == weights("FrankaPick", "dense")
    other.load_state_dict(state)
    assert env.unwrapped.weights == weights("FrankaPick", "sparse")
    end(other, True, True)
    assert other.stage == 2


def test_a_task_with_one_reward_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="a task whose reward can be changed"):
        Curriculum(gymnasium.make_vec("CartPole-v1"), STAGES)

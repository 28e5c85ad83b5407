"""A PPO loop in one file, as in CleanRL, with a bonus: the ten lines to add are marked  # +."""

import sys

import gymnasium
import torch
from torch import nn
from torch.distributions import Categorical

from mimex import BonusScale, MIMEx, RolloutWindows  # +

ENVS, STEPS, GAMMA, LAMBDA = 8, 128, 0.99, 0.95


def main(updates=40, beta=0.3, make_env=lambda: gymnasium.make("Acrobot-v1"), bonus=None):
    torch.manual_seed(0)
    envs = gymnasium.vector.SyncVectorEnv([make_env] * ENVS, autoreset_mode="SameStep")
    actor, critic = (nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, n)) for n in (3, 1))
    adam = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=2.5e-3, eps=1e-5)
    bonus = bonus or MIMEx(length=5, normalize=True)  # +
    windows = RolloutWindows(5, ENVS, ends_at="next", autoreset="same_step")  # +
    scale = BonusScale(beta)  # +
    obs, now = torch.zeros(STEPS, ENVS, 6), torch.as_tensor(envs.reset(seed=0)[0])
    acts, logps, rews, dones, values = torch.zeros(5, STEPS, ENVS)
    for update in range(updates):
        ends = [torch.zeros(0, 6)]  # +
        for t in range(STEPS):
            with torch.no_grad():
                policy, values[t] = Categorical(logits=actor(now)), critic(now).squeeze(1)
            obs[t], acts[t] = now, policy.sample()
            logps[t] = policy.log_prob(acts[t])
            new, reward, terminated, truncated, info = envs.step(acts[t].long().numpy())
            now, rews[t] = torch.as_tensor(new), torch.as_tensor(reward)
            dones[t] = torch.as_tensor(terminated | truncated)
            ends += [torch.tensor(o[None]) for o in info.get("final_obs", ()) if o is not None]  # +
        index = windows.build(obs, dones.bool(), last=now, finals=torch.cat(ends))  # +
        paid, metrics = bonus.learn(index[:])  # +
        total, _, _ = scale.combine(rews, paid.view(STEPS, ENVS))  # + BEFORE the advantages
        with torch.no_grad():
            value, advantage, advantages = critic(now).squeeze(1), 0.0, torch.zeros(STEPS, ENVS)
            for t in reversed(range(STEPS)):
                discount = GAMMA * (1 - dones[t])
                delta = total[t] + discount * value - values[t]
                advantages[t] = advantage = delta + discount * LAMBDA * advantage
                value = values[t]
        flat = [x.flatten(0, 1) for x in (obs, acts, logps, advantages, advantages + values)]
        for rows in (rows for _ in range(4) for rows in torch.randperm(STEPS * ENVS).split(256)):
            o, a, old, adv, target = (x[rows] for x in flat)
            policy, adv = Categorical(logits=actor(o)), (adv - adv.mean()) / (adv.std() + 1e-8)
            ratio = (policy.log_prob(a) - old).exp()
            gain = torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = 0.5 * (critic(o).squeeze(1) - target).square().mean() - gain
            adam.zero_grad(), loss.backward(), adam.step()
        print(f"update {update}: {rews.mean():.3f} extrinsic, {metrics['bonus/mean']:.4f} bonus")
    return {"observations": obs, "rewards": total, "advantages": advantages, "values": values}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

-- mail_trajectories: who has mail.
-- grain: one row per trajectory
-- inputs: trajectory_mail
-- owner: ingest
select distinct tenant, trajectory_id from trajectory_mail

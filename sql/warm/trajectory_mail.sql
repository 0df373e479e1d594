-- trajectory_mail: what other processes tell a trajectory; body is the stored item of runtime/mailbox/mail.py, byte for byte.
-- grain: one row per waiting item
-- inputs: the mail store
-- owner: ingest
create table if not exists trajectory_mail (
    tenant text not null,
    trajectory_id text not null,
    mail_id text not null,
    kind text not null,
    posted_at bigint not null,
    body bytea not null,
    primary key (tenant, trajectory_id, mail_id)
)

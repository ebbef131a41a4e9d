"""``hs.plan_stages``, pipeline schedules, and logs of Alpa's stage construction."""

terraform import gtm_policy.example policy

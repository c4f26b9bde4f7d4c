"""Tokens of vendors, by the form that the vendor documents or its tokens have in practice.

Data alone: kind, pattern, and the words of which a text contains at least one if the pattern may
match. Each form is anchored at both ends by the table that it joins.
"""

from __future__ import annotations

_UUID = "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_TWILIO = tuple(f"sk{byte:02x}" for byte in range(256))

TOKENS_BY_PREFIX: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # Clouds and hosting
    (
        "aws_id",
        r"(?:A3T[A-Z0-9]|AGPA|AIDA|AROA|AIPA|ANPA|ANVA|APKA)[A-Z0-9]{16}",
        ("a3t", "agpa", "aida", "aroa", "aipa", "anpa", "anva", "apka"),
    ),
    ("aws_bedrock_key", r"ABSK[A-Za-z0-9+/]{60,300}={0,2}", ("absk",)),
    ("aws_mws_key", rf"amzn\.mws\.{_UUID}", ("amzn.mws.",)),
    ("google_refresh_token", r"1//0[\w-]{40,200}", ("1//0",)),
    ("alibaba_key_id", r"LTAI[A-Za-z0-9]{16,24}", ("ltai",)),
    ("tencent_key_id", r"AKID[A-Za-z0-9]{32}", ("akid",)),
    ("cloudflare_key", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}", ("v1.0-",)),
    ("cloudflare_key", r"cf(?:ut|at|k)_[A-Za-z0-9]{40,60}", ("cfut_", "cfat_", "cfk_")),
    ("heroku_key", r"HRKU-AA[\w-]{58}", ("hrku-",)),
    ("fly_token", r"f(?:m2|m1r|m1a|o1)_[\w+/=-]{40,1000}", ("fm2_", "fm1r_", "fm1a_", "fo1_")),
    ("vercel_token", r"vc[pkia]_[A-Za-z0-9]{24,80}", ("vcp_", "vck_", "vci_", "vca_")),
    ("netlify_token", r"nfp_[A-Za-z0-9]{36}", ("nfp_",)),
    ("render_key", r"rnd_[A-Za-z0-9]{24,40}", ("rnd_",)),
    ("supabase_key", r"(?:sbp_[a-f0-9]{40}|sb_secret_[\w-]{20,80})", ("sbp_", "sb_secret_")),
    ("planetscale_token", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{32,64}", ("pscale_",)),
    ("neon_key", r"napi_[a-z0-9]{60,70}", ("napi_",)),
    ("pulumi_token", r"pul-[a-f0-9]{40}", ("pul-",)),
    ("doppler_token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{40,80}", ("dp.",)),
    ("onepassword_token", r"ops_eyJ[A-Za-z0-9+/]{200,1000}={0,3}", ("ops_eyj",)),
    ("onepassword_key", r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-){4}[A-Z0-9]{5}", ("a3-",)),
    # Source, packages and builds
    ("gitlab_token", r"(?:GR1348941|glrt-|glptt-)[\w-]{20,60}", ("gr1348941", "glrt-", "glptt-")),
    ("bitbucket_token", r"(?:ATBB|ATCTT3)[\w=-]{24,220}", ("atbb", "atctt3")),
    ("docker_token", r"dckr_[po]at_[\w-]{27,40}", ("dckr_pat_", "dckr_oat_")),
    ("rubygems_key", r"rubygems_[a-f0-9]{48}", ("rubygems_",)),
    ("nuget_key", r"oy2[a-z0-9]{43}", ("oy2",)),
    ("clojars_token", r"CLOJARS_[a-z0-9]{60}", ("clojars_",)),
    ("artifactory_key", r"AKCp[A-Za-z0-9]{69}", ("akcp",)),
    ("buildkite_token", r"bk(?:ua|pt|ct)_[a-f0-9]{40}", ("bkua_", "bkpt_", "bkct_")),
    ("circleci_token", r"CCI(?:PAT|PRJ)_[A-Za-z0-9]{22}_[a-f0-9]{40}", ("ccipat_", "cciprj_")),
    ("sonar_token", r"sq[uap]_[a-f0-9]{40}", ("squ_", "sqa_", "sqp_")),
    ("sourcegraph_token", r"sgp_(?:[A-Za-z0-9]{16}_|local_)?[a-f0-9]{40}", ("sgp_",)),
    ("postman_key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}", ("pmak-",)),
    # Watching
    ("grafana_token", r"glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}", ("glsa_",)),
    ("grafana_token", r"glc_[A-Za-z0-9+/]{32,400}={0,2}", ("glc_",)),
    ("grafana_token", r"eyJrIjoi[A-Za-z0-9+/]{60,400}={0,2}", ("eyjrijoi",)),
    ("newrelic_key", r"NR(?:AK|II|RA|AA)-[\w-]{27,40}", ("nrak-", "nrii-", "nrra-", "nraa-")),
    ("newrelic_key", r"NRJS-[a-f0-9]{19}", ("nrjs-",)),
    ("sentry_token", r"sntrys_eyJ[\w+/=-]{60,500}", ("sntrys_",)),
    ("sentry_token", r"sntryu_[a-f0-9]{64}", ("sntryu_",)),
    ("dynatrace_token", r"dt0[a-z]\d\d\.[A-Z0-9]{8,24}\.[A-Z0-9]{64}", ("dt0",)),
    ("posthog_key", r"ph[xs]_[A-Za-z0-9]{40,60}", ("phx_", "phs_")),
    ("launchdarkly_key", rf"(?:sdk|api|mob)-{_UUID}", ("sdk-", "api-", "mob-")),
    # Models and what agents use
    ("pinecone_key", r"pcsk_[A-Za-z0-9]{5,6}_[A-Za-z0-9]{60,64}", ("pcsk_",)),
    ("langfuse_key", rf"sk-lf-{_UUID}", ("sk-lf-",)),
    ("tavily_key", r"tvly-[A-Za-z0-9-]{32,64}", ("tvly-",)),
    ("jina_key", r"jina_[a-f0-9]{32}[\w-]{28}", ("jina_",)),
    ("voyage_key", r"pa-[\w-]{43}", ("pa-",)),
    ("firecrawl_key", r"fc-[a-f0-9]{32}", ("fc-",)),
    ("fireworks_key", r"fw_[A-Za-z0-9]{22,24}", ("fw_",)),
    ("cerebras_key", r"csk-[a-z0-9]{48}", ("csk-",)),
    ("together_key", r"tgp_v1_[\w-]{43}", ("tgp_v1_",)),
    ("elevenlabs_key", r"sk_[a-f0-9]{48}", ("sk_",)),
    ("wandb_key", r"wandb_v1_[\w-]{60,90}", ("wandb_v1_",)),
    # Talk, mail and offices
    (
        "figma_token",
        r"fig(?:d|ur|uh|o|oh|or)_[\w-]{40,60}",
        ("figd_", "figur_", "figuh_", "figo_", "figoh_", "figor_"),
    ),
    ("hubspot_token", rf"pat-(?:na|eu|ap|ca)\d-{_UUID}", ("pat-na", "pat-eu", "pat-ap", "pat-ca")),
    ("mailgun_key", r"key-[0-9a-f]{32}", ("key-",)),
    ("brevo_key", r"x(?:key|smtp)sib-[a-f0-9]{64}-[A-Za-z0-9]{16}", ("xkeysib-", "xsmtpsib-")),
    ("resend_key", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}", ("re_",)),
    ("dropbox_token", r"sl\.(?:u\.)?[\w-]{120,1500}", ("sl.",)),
    ("typeform_token", r"tfp_[\w.=-]{40,64}", ("tfp_",)),
    ("contentful_token", r"CFPAT-[\w-]{43}", ("cfpat-",)),
    ("readme_key", r"rdme_[a-z0-9]{70}", ("rdme_",)),
    ("prefect_key", r"pn[ub]_[A-Za-z0-9]{36}", ("pnu_", "pnb_")),
    ("linear_key", r"lin_(?:oauth|wh)_[A-Za-z0-9]{32,64}", ("lin_oauth_", "lin_wh_")),
    ("notion_token", r"secret_[A-Za-z0-9]{43}", ("secret_",)),
    ("facebook_token", r"EAA[A-Za-z0-9]{80,300}", ("eaa",)),
    ("twitter_token", r"A{20}[A-Za-z0-9]{0,60}%[A-Za-z0-9%]{30,100}", ("a" * 20,)),
    ("mapbox_token", r"sk\.eyJ[\w-]{40,200}\.[\w-]{20,40}", ("sk.eyj",)),
    # Money and shops
    ("square_token", r"sq0(?:atp|csp|idp)-[\w-]{22,43}", ("sq0",)),
    ("square_token", r"EAAA[\w-]{60}", ("eaaa",)),
    ("braintree_token", r"access_token\$\w{4,16}\$[a-z0-9]{16}\$[a-f0-9]{32}", ("access_token$",)),
    ("plaid_token", rf"access-(?:sandbox|development|production)-{_UUID}", ("access-",)),
    ("razorpay_key", r"rzp_(?:live|test)_[A-Za-z0-9]{14}", ("rzp_",)),
    ("flutterwave_key", r"FLWSECK(?:_TEST)?-[a-zA-Z0-9]{32}-X", ("flwseck",)),
    ("shippo_key", r"shippo_(?:live|test)_[a-f0-9]{40}", ("shippo_",)),
    ("easypost_key", r"EZ[AT]K[a-zA-Z0-9]{54}", ("ezak", "eztk")),
    ("duffel_key", r"duffel_(?:live|test)_[\w=-]{43}", ("duffel_",)),
    ("paddle_key", r"pdl_(?:live|sdbx)_apikey_\w{26}_\w{22}_\w{3}", ("pdl_",)),
)
"""Tokens that begin with one of their words."""

TOKENS_BY_SHAPE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("twilio_key", r"SK[0-9a-f]{32}", _TWILIO),
    ("firebase_key", r"AAAA[\w-]{7}:APA91b[\w-]{130,160}", (":apa91b",)),
    ("azure_client_secret", r"[\w~.-]{3}\dQ~[\w~.-]{31,34}", tuple(f"{n}q~" for n in range(10))),
    ("azure_devops_token", r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}", ("azdo",)),
    ("terraform_token", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,80}", (".atlasv1.",)),
    ("crates_token", r"cio[A-Za-z0-9]{32}", ("cargo", "crates")),
    ("newrelic_key", r"[a-f0-9]{36}NRAL", ("nral",)),
    (
        "discord_token",
        r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}",
        ("discord", "bot ", "bot.", "login("),
    ),
    ("airtable_token", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}", ("airtable",)),
    ("mailgun_key", r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}", ("mailgun",)),
    ("mailchimp_key", r"[0-9a-f]{32}-us\d{1,2}", tuple(f"-us{n}" for n in range(1, 10))),
    ("asana_token", r"\d/\d{10,20}(?:/\d{10,20})?:[a-f0-9]{32}", ("asana",)),
)
"""Tokens whose words stand in their middle, at their end, or beside them."""

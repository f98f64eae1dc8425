//! Holds `docs/openapi.json` to the routers and their answers.

"""The claims of Marcus et al. (SYSTOR 2024): their measures, study and page."""

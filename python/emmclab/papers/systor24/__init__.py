"""The claims of Marcus et al. (SYSTOR 2024): how they are measured, and their study and page."""

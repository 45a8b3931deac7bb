"""The three French registries over one world: Recherche d'entreprises, INPI RNE, API Entreprise's
RCS extract."""
